//! YAML 1.2.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use super::build::Builder;
use super::{At, Kind, Node, Stopped, json};

/// Builds the tree of a text.
pub(super) fn build(text: &str, builder: &mut Builder) -> Result<(), Stopped> {
    let mut documents = 0_usize;
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| Stopped {
            at: at(error.marker()).min(json::Cursor::at(text, text.len())),
            message: format!("no YAML: {}", error.info()),
            is_syntax: true,
        })?;
        let at = at(&span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    let message = "the text has more than one document".to_owned();
                    return Err(Stopped { at, message, is_syntax: false });
                }
            }
            Event::Alias(_) => {
                builder.refuse(at, "aliases are not taken: write the value itself");
                builder.put(Node { at, kind: Kind::Refused });
            }
            Event::Scalar(text, style, anchor, tag) => {
                without(anchor, tag.is_some(), at, builder);
                let is_plain = matches!(style, ScalarStyle::Plain);
                builder.put(Node { at, kind: Kind::Scalar { text: text.into_owned(), is_plain } });
            }
            Event::SequenceStart(anchor, tag) => {
                without(anchor, tag.is_some(), at, builder);
                builder.open(at, true)?;
            }
            Event::MappingStart(anchor, tag) => {
                without(anchor, tag.is_some(), at, builder);
                builder.open(at, false)?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.close(),
        }
    }
    Ok(())
}

/// Refuses an anchor, by which a text of some bytes could mean a tree of any size, and a tag.
fn without(anchor: usize, has_tag: bool, at: At, builder: &mut Builder) {
    if anchor != 0 {
        builder.refuse(at, "anchors are not taken");
    }
    if has_tag {
        builder.refuse(at, "tags are not taken");
    }
}

fn at(marker: &Marker) -> At {
    At { line: marker.line(), column: marker.col() + 1 }
}
