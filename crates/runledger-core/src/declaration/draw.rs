//! A lifecycle's picture: a flowchart of Mermaid. Its diagrams of states would fit by their name, but have no dashed
//! arrows, and what is no step of the work itself must look otherwise.

use std::fmt::Write as _;

use crate::domain::lifecycle::{Lifecycle, Phase};

/// The arrow of what happens to a run, in place of what its worker does.
const DASHED: &str = "-.->";

/// Draws a lifecycle; `standing`: the phase that is marked, because a run is in it.
#[must_use]
pub fn draw(lifecycle: &Lifecycle, standing: Option<&str>) -> String {
    let mut picture = Picture { lifecycle, text: "flowchart TD\n".to_owned() };
    let ids: Vec<String> = (0..lifecycle.phases.len()).map(|index| format!("p{index}")).collect();
    for (phase, id) in lifecycle.phases.iter().zip(&ids) {
        picture.line(&format!("{id}[\"{}\"]", label(phase)));
    }
    let may_complete_in_all = lifecycle.completes_in().is_none() && !ids.is_empty();
    if may_complete_in_all || !lifecycle.on_suspend.is_empty() || lifecycle.at_end.is_some() {
        picture.line("any{{\"any phase\"}}");
    }
    for (phase, id) in lifecycle.phases.iter().zip(&ids) {
        if phase.initial {
            picture.line(&format!("begin(( )) --> {id}"));
        }
        for next in &phase.next {
            let name = lifecycle.iterates(Some(&phase.name), next).then_some("iteration");
            picture.arrow(id, "-->", name, next);
        }
        if phase.may_complete {
            picture.line(&format!("{id} -->|\"complete\"| done((( )))"));
        }
    }
    if may_complete_in_all {
        picture.line("any -->|\"complete\"| done((( )))");
    }
    for (kind, phase) in &lifecycle.on_suspend {
        picture.arrow("any", DASHED, Some(kind), phase);
    }
    if let Some(phase) = &lifecycle.at_end {
        picture.arrow("any", DASHED, Some("end"), phase);
    }
    let standing = lifecycle.phases.iter().zip(&ids).find(|(phase, _)| Some(phase.name.as_str()) == standing);
    if let Some((_, id)) = standing {
        picture.line("classDef standing fill:#ffd54f,stroke:#e65100,stroke-width:3px,color:#000");
        picture.line(&format!("class {id} standing"));
    }
    picture.text
}

/// A picture under way.
struct Picture<'a> {
    lifecycle: &'a Lifecycle,
    text: String,
}

impl Picture<'_> {
    fn line(&mut self, line: &str) {
        writeln!(self.text, "    {line}").expect("a string takes everything");
    }

    /// An arrow to a phase, which has its name written on it.
    fn arrow(&mut self, from: &str, arrow: &str, name: Option<&str>, to: &str) {
        let Some(to) = self.lifecycle.phases.iter().position(|phase| phase.name == to) else { return };
        let name = name.map(|name| format!("|\"{}\"|", escaped(name))).unwrap_or_default();
        self.line(&format!("{from} {arrow}{name} p{to}"));
    }
}

fn label(phase: &Phase) -> String {
    let name = escaped(&phase.name);
    match &phase.suspends {
        None => name,
        Some(kind) => format!("{name}<br/>{}", escaped(kind)),
    }
}

/// A text that stands for itself between quotes: whatever Mermaid or HTML may take for more is written as its number.
fn escaped(text: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-' | '.' | ' ');
    text.chars().fold(String::new(), |mut escaped, char| {
        if is_plain(char) {
            escaped.push(char);
        } else {
            write!(escaped, "#{};", u32::from(char)).expect("a string takes everything");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::super::{built_in, read};
    use super::*;

    #[test]
    fn the_picture_shows_steps_suspensions_and_where_a_run_stands() {
        let lifecycle = read(built_in("openviber.task").unwrap()).unwrap();
        let wanted = r#"flowchart TD
    p0["intake"]
    p1["planning"]
    p2["executing"]
    p3["verifying"]
    p4["reporting"]
    p5["awaiting_feedback<br/>FEEDBACK"]
    p6["paused<br/>PAUSED"]
    p7["blocked<br/>BLOCKED"]
    any{{"any phase"}}
    begin(( )) --> p0
    p0 --> p1
    p1 --> p2
    p2 --> p3
    p2 --> p7
    p3 --> p4
    p4 --> p5
    p4 -->|"complete"| done((( )))
    p5 --> p1
    p5 --> p6
    p5 -->|"complete"| done((( )))
    p6 --> p1
    p7 --> p5
    any -.->|"BLOCKED"| p7
    any -.->|"BUDGET"| p6
    any -.->|"PAUSED"| p6
    classDef standing fill:#ffd54f,stroke:#e65100,stroke-width:3px,color:#000
    class p3 standing
"#;
        assert_eq!(draw(&lifecycle, Some("verifying")), wanted);
        let unmarked = draw(&lifecycle, Some("nowhere"));
        assert!(wanted.starts_with(&unmarked) && !unmarked.contains("class"));
    }

    #[test]
    fn iterations_and_the_end_are_named() {
        let text = "name: a\nphases: {end: {initial: true, next: b.c}, b.c: {next: end}, over: {}}\n\
                    iterates: {from: b.c, to: end}\nat_end: over\n";
        let wanted = r#"flowchart TD
    p0["end"]
    p1["b.c"]
    p2["over"]
    any{{"any phase"}}
    begin(( )) --> p0
    p0 --> p1
    p1 -->|"iteration"| p0
    any -->|"complete"| done((( )))
    any -.->|"end"| p2
"#;
        assert_eq!(draw(&read(text).unwrap(), None), wanted);
    }

    #[test]
    fn no_text_of_a_lifecycle_is_taken_for_the_notation() {
        let mut lifecycle = Lifecycle::default();
        let name = "a\"]\n<b>`#;".to_owned();
        lifecycle.phases.push(Phase { name, ..Phase::default() });
        assert!(draw(&lifecycle, None).contains("p0[\"a#34;#93;#10;#60;b#62;#96;#35;#59;\"]\n"));
    }
}
