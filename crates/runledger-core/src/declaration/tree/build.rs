//! Nodes of what a parser tells one after the other.

use super::super::finding::{quoted, within};
use super::{At, DEPTH_MAX, Finding, Kind, Node, Stopped};

/// A tree under way.
#[derive(Default)]
pub(super) struct Builder {
    /// The lists and mappings that have not ended, the outermost first.
    open: Vec<Open>,
    root: Option<Node>,
    findings: Vec<Finding>,
}

/// A list or a mapping that has not ended.
struct Open {
    at: At,
    /// Its path, taken when it began.
    path: String,
    held: Held,
}

enum Held {
    List(Vec<Node>),
    Map { entries: Vec<(Node, Node)>, key: Option<Node> },
}

impl Builder {
    /// A list or a mapping begins.
    pub(super) fn open(&mut self, at: At, is_list: bool) -> Result<(), Stopped> {
        if self.open.len() == DEPTH_MAX {
            let message = format!("lists and mappings are more than {DEPTH_MAX} deep");
            return Err(Stopped { at, message, is_syntax: false });
        }
        let held = if is_list { Held::List(Vec::new()) } else { Held::Map { entries: Vec::new(), key: None } };
        self.open.push(Open { at, path: self.path(), held });
        Ok(())
    }

    /// The innermost list or mapping ends.
    pub(super) fn close(&mut self) {
        let Some(Open { at, path: _, held }) = self.open.pop() else { return };
        let kind = match held {
            Held::List(items) => Kind::List(items),
            Held::Map { entries, key: _ } => Kind::Map(entries),
        };
        self.put(Node { at, kind });
    }

    /// A node is whole.
    pub(super) fn put(&mut self, node: Node) {
        match self.open.last_mut().map(|open| &mut open.held) {
            None => self.root = Some(node),
            Some(Held::List(items)) => items.push(node),
            Some(Held::Map { entries, key }) => match key.take() {
                None => *key = Some(node),
                Some(key) => match unusable(&key, entries) {
                    None => entries.push((key, node)),
                    Some(message) => self.refuse_key(&key, message),
                },
            },
        }
    }

    /// Something is wrong with the node that comes next.
    pub(super) fn refuse(&mut self, at: At, message: &str) {
        self.findings.push(Finding { at, path: self.path(), message: message.to_owned() });
    }

    /// The tree, with everything that is wrong with it.
    pub(super) fn into_tree(self) -> (Option<Node>, Vec<Finding>) {
        (self.root, self.findings)
    }

    /// The path of the node that comes next.
    fn path(&self) -> String {
        match self.open.last() {
            None => String::new(),
            Some(Open { path, held: Held::List(items), .. }) => format!("{path}[{}]", items.len()),
            Some(Open { path, held: Held::Map { key, .. }, .. }) => match key.as_ref().and_then(text) {
                None => path.clone(),
                Some(key) => within(path, key),
            },
        }
    }

    fn refuse_key(&mut self, key: &Node, message: String) {
        let path = self.open.last().map_or("", |open| &open.path);
        let path = text(key).map_or_else(|| path.to_owned(), |key| within(path, key));
        self.findings.push(Finding { at: key.at, path, message });
    }
}

/// The reason for which a key and its value are left out. What was refused already is left out without another finding.
fn unusable(key: &Node, entries: &[(Node, Node)]) -> Option<String> {
    match &key.kind {
        Kind::List(_) | Kind::Map(_) => Some("a list or a mapping is no key".to_owned()),
        Kind::Refused => Some("an alias is no key".to_owned()),
        Kind::Scalar { text: key, is_plain: true } if key == "<<" => Some("merge keys are not taken".to_owned()),
        Kind::Scalar { text: key, .. } => {
            let earlier = entries.iter().find(|(earlier, _)| text(earlier) == Some(key))?;
            Some(format!("the key {} stands on line {} already", quoted(key), earlier.0.at.line))
        }
    }
}

fn text(node: &Node) -> Option<&str> {
    match &node.kind {
        Kind::Scalar { text, .. } => Some(text),
        Kind::List(_) | Kind::Map(_) | Kind::Refused => None,
    }
}
