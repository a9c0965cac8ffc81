//! What stands beside a run: its input, its result and its links.

use prost::Message as _;
use prost_types::Struct;
use runledger_proto::json::structure;
use runledger_proto::v1;

use super::metadata::object_of;
use crate::domain::limits::{
    CALL_CONTENTS_BYTES_MAX, CALL_CONTENTS_WIRE_FACTOR, CALL_LINKS_BYTES_MAX, CONTENT_BYTES_MAX,
    LINK_MEDIA_TYPE_BYTES_MAX, LINK_REL_BYTES_MAX, LINK_SUMMARY_BYTES_MAX, LINK_TARGET_BYTES_MAX, LINKS_MAX,
};
use crate::domain::{
    Attachments, AttachmentsChange, Content, ContentDigest, ContentRow, ContentTable, Hash, Link, Metadata, Revision,
    Run,
};
use crate::store::{StoreError, contents};
use crate::wire::from_domain::{FromDomain, IntoMessage};
use crate::wire::scalars::text;
use crate::wire::validate::Violations;

/// The metadata and the content of one call, which have a limit together. `bytes_max` is that of the metadata alone.
pub(in crate::wire) fn with_metadata(
    metadata: Option<Struct>,
    bytes_max: usize,
    (field, content): (&'static str, Option<Struct>),
    violations: &mut Violations,
) -> (Metadata, Option<Content>) {
    let Some(content) = content else { return (super::metadata::metadata(metadata, bytes_max, violations), None) };
    let wire = metadata.as_ref().map_or(0, Struct::encoded_len) + content.encoded_len();
    let wire_max = CALL_CONTENTS_BYTES_MAX * CALL_CONTENTS_WIRE_FACTOR;
    if wire > wire_max {
        violations.push(field, format!("is {wire} bytes on the wire with the metadata; the limit is {wire_max}"));
    }
    let metadata = super::metadata::metadata(metadata, bytes_max, violations);
    let content = Content::from(&object_of(field, content, CONTENT_BYTES_MAX, violations));
    let bytes = content.text().len() + if metadata.is_empty() { 0 } else { metadata.bytes() };
    if bytes > CALL_CONTENTS_BYTES_MAX {
        violations.oversize(
            field,
            format!("is {bytes} bytes as compact JSON with the metadata; the limit is {CALL_CONTENTS_BYTES_MAX}"),
        );
    }
    (metadata, Some(content))
}

/// `links`.
pub(in crate::wire) fn links(links: Vec<v1::Link>, violations: &mut Violations) -> Vec<Link> {
    if links.len() > LINKS_MAX {
        violations.push("links", format!("has {} entries; the limit is {LINKS_MAX}", links.len()));
        return Vec::new();
    }
    let links: Vec<Link> = links
        .into_iter()
        .enumerate()
        .map(|(nth, link)| of_request(&format!("links[{nth}]"), link, violations))
        .collect();
    let bytes: usize = links.iter().map(Link::text_bytes).sum();
    if bytes > CALL_LINKS_BYTES_MAX {
        violations.push("links", format!("has {bytes} bytes of texts; the limit is {CALL_LINKS_BYTES_MAX} a call"));
    }
    links
}

fn of_request(at: &str, link: v1::Link, violations: &mut Violations) -> Link {
    let v1::Link { rel, target, sha256, media_type, summary, revision: _, late: _ } = link;
    violations.rel(&format!("{at}.rel"), &rel);
    let target = violations.required(&format!("{at}.target"), target, LINK_TARGET_BYTES_MAX);
    let hash = Hash::parse(&sha256);
    if hash.is_none() && !sha256.is_empty() {
        violations.push(format!("{at}.sha256"), "must be 64 lower-case hexadecimal digits");
    }
    let media_type = violations.optional(&format!("{at}.media_type"), media_type, LINK_MEDIA_TYPE_BYTES_MAX);
    let summary = violations.optional(&format!("{at}.summary"), summary, LINK_SUMMARY_BYTES_MAX);
    Link { rel, target, sha256: hash, media_type, summary }
}

impl Violations {
    /// The `rel` of a link, which must be there.
    pub(in crate::wire) fn rel(&mut self, field: &str, rel: &str) {
        if !Link::is_rel(rel) {
            self.push(
                field,
                format!("must be 1 to {LINK_REL_BYTES_MAX} characters of [a-z0-9_.-], a lower-case letter first"),
            );
        }
    }
}

impl FromDomain<ContentDigest> for v1::Content {
    fn from_domain(digest: ContentDigest) -> Self {
        Self { bytes: digest.bytes, sha256: digest.sha256.to_string() }
    }
}

impl FromDomain<&Link> for v1::Link {
    fn from_domain(link: &Link) -> Self {
        Self {
            rel: link.rel.clone(),
            target: link.target.clone(),
            sha256: link.sha256.map(String::from).unwrap_or_default(),
            media_type: text(link.media_type.as_ref()),
            summary: text(link.summary.as_ref()),
            revision: 0,
            late: false,
        }
    }
}

/// Shows of a run what it has beside it.
pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    shown.link_count = run.all_links();
    let Some(refinements) = &run.refinements else { return };
    // Links are counted with those of a late report.
    let Attachments { input, result, links: _ } = &refinements.attachments;
    shown.input = input.map(IntoMessage::into_message);
    shown.result = result.map(|result| result.content.into_message());
}

pub(in crate::wire) fn show_change(change: &AttachmentsChange, shown: &mut v1::RunChanges) {
    let AttachmentsChange { input, result, links } = change;
    shown.input = input.map(IntoMessage::into_message);
    shown.result = result.map(IntoMessage::into_message);
    shown.links = links.iter().map(IntoMessage::into_message).collect();
}

/// Rows that were read of a run, in an answer.
///
/// # Errors
///
/// [`StoreError::Corrupt`].
pub fn whole(run: &Run, rows: &[ContentRow], answer: &mut v1::GetRunResponse) -> Result<(), StoreError> {
    let late = late_revision(run);
    for row in rows {
        match row.table {
            ContentTable::Input => answer.input = Some(shown(row)?),
            ContentTable::Result if Some(row.revision) == late => answer.late_result = Some(shown(row)?),
            ContentTable::Result => answer.result = Some(shown(row)?),
            ContentTable::Link => answer.links.push(link(run, row)?),
        }
    }
    Ok(())
}

/// The link of a row.
///
/// # Errors
///
/// [`StoreError::Corrupt`].
pub fn link(run: &Run, row: &ContentRow) -> Result<v1::Link, StoreError> {
    let own = run.refinements.as_ref().map_or(0, |refinements| refinements.attachments.links);
    let link = contents::link(row)?;
    Ok(v1::Link { revision: row.revision.into(), late: row.number > own, ..(&link).into_message() })
}

fn late_revision(run: &Run) -> Option<Revision> {
    run.supervision.late_report.as_ref()?.result.map(|result| result.revision)
}

fn shown(row: &ContentRow) -> Result<Struct, StoreError> {
    contents::object(row).map(|object| structure(object.as_map()))
}
