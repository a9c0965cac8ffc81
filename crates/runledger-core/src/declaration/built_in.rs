//! The lifecycles that come with the authority.

/// The name of each lifecycle, and its declaration.
const BUILT_IN: [(&str, &str); 5] = [
    ("browser_control.task", include_str!("../../../../lifecycles/browser_control.task.yaml")),
    ("comet.browser_run", include_str!("../../../../lifecycles/comet.browser_run.yaml")),
    ("craik.task_run", include_str!("../../../../lifecycles/craik.task_run.yaml")),
    ("openchrome.task", include_str!("../../../../lifecycles/openchrome.task.yaml")),
    ("openviber.task", include_str!("../../../../lifecycles/openviber.task.yaml")),
];

/// The declaration of a lifecycle that comes with the authority.
#[must_use]
pub fn built_in(name: &str) -> Option<&'static str> {
    built_ins().find(|(own, _)| *own == name).map(|(_, source)| source)
}

/// The names of the lifecycles that come with the authority, with their declarations.
pub fn built_ins() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILT_IN.into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn each_reads_without_findings_under_its_own_name() {
        for (name, source) in built_ins() {
            let lifecycle = read(source).unwrap_or_else(|findings| panic!("{name}: {findings:#?}"));
            assert_eq!(lifecycle.name, name);
            assert!(source.starts_with("# "), "{name} says what it is for");
        }
        assert_eq!(built_in("nothing"), None);
    }

    #[test]
    fn the_page_says_which_of_them_start_runs() {
        let page = include_str!("../../../../docs/lifecycles.md");
        let sentence = page.split_once("Of these, ").unwrap().1.split_once(" start runs now").unwrap().0;
        let said: Vec<&str> = sentence.split('`').skip(1).step_by(2).collect();
        let starts = |source: &str| read(source).unwrap().not_enforced().is_empty();
        let start: Vec<&str> = built_ins().filter(|(_, source)| starts(source)).map(|(name, _)| name).collect();
        assert_eq!(said, start);
    }

    #[test]
    fn every_file_of_lifecycles_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lifecycles");
        let mut files: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        let names: Vec<String> = built_ins().map(|(name, _)| format!("{name}.yaml")).collect();
        assert_eq!(files, names);
    }
}
