//! The documentation for people: README.md fits its reader, and every link of a page leads somewhere.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of README.md: a stranger reads it whole.
const README_LINES_MAX: usize = 200;

/// Pages at the root of the repository. Every page under `docs` is looked at besides.
const ROOT_PAGES: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "crates/runledger-client/README.md",
    "helm/runledger/README.md",
];

#[test]
fn the_readme_fits_its_reader() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= README_LINES_MAX, "README.md has {lines} lines: move what is looked up to a page under docs");
}

#[test]
fn every_link_of_the_documentation_leads_to_a_file_and_a_heading() {
    let mut seen = 0;
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (line, target) in links(&text).into_iter().filter(|(_, target)| is_relative(target)) {
            seen += 1;
            if let Some(why) = breach(&page, &target) {
                broken.push(format!("{}:{line}: {target}: {why}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    assert!(seen >= 60, "{seen} links were found");
}

#[test]
fn every_page_is_reached_from_the_readme() {
    let mut reached = vec![root().join("README.md")];
    let mut next = 0;
    while let Some(page) = reached.get(next).cloned() {
        let text = fs::read_to_string(&page).unwrap();
        for (_, target) in links(&text).into_iter().filter(|(_, target)| is_relative(target)) {
            let file = target.split('#').next().unwrap();
            let file = page.parent().unwrap().join(file);
            let Ok(file) = file.canonicalize() else { continue };
            if file.extension().is_some_and(|extension| extension == "md") && !reached.contains(&file) {
                reached.push(file);
            }
        }
        next += 1;
    }
    for page in pages() {
        assert!(reached.contains(&page), "no link leads to {}", page.strip_prefix(root()).unwrap().display());
    }
}

#[test]
fn links_and_headings_are_read_as_markdown_has_them() {
    let text = "# A *tour* of `run-1`, and [more](x.md)!\n\
                [one](a.md), [two\nlines](b.md#c), ![a picture](d.svg \"its title\")\n\
                `[code](e.md)` and <https://example.com>\n\
                ```sh\n# [fenced](f.md)\n```\n\
                [named]: g.md#h\n\
                ## Twice\n## Twice\n";
    let targets: Vec<_> = links(text);
    let targets: Vec<_> = targets.iter().map(|(line, target)| (*line, target.as_str())).collect();
    assert_eq!(targets, [(1, "x.md"), (2, "a.md"), (3, "b.md#c"), (3, "d.svg"), (8, "g.md#h")]);
    assert_eq!(anchors(text), ["a-tour-of-run-1-and-more", "twice", "twice-1"]);
    assert!(is_relative("a.md#b") && is_relative("#b") && !is_relative("https://a") && !is_relative("mailto:a"));
}

#[test]
fn a_link_that_leads_nowhere_is_seen() {
    let page = root().join("docs/clients/go.md");
    for (target, why) in [
        ("../clients.md#watches", None),
        ("service_config.json", None),
        ("../../proto/runledger/v1", None),
        ("#the-bridge", None),
        ("nobody.md", Some("there is no such file")),
        ("../clients.md#nothing", Some("there is no such heading")),
        ("#nothing", Some("there is no such heading")),
        ("../../../outside.md", Some("there is no such file")),
        ("/docs/clients.md", Some("it is not relative to its page")),
    ] {
        assert_eq!(breach(&page, target), why, "{target}");
    }
}

#[test]
fn every_folder_of_the_code_is_in_the_table_of_the_tree() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let table = text.split("\n## ").find(|part| part.starts_with("The tree\n")).unwrap();
    let named = code_spans(table);
    let left_out: Vec<_> = ["src", "crates"]
        .into_iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).unwrap().map(move |entry| (folder, entry.unwrap())))
        .map(|(folder, entry)| format!("{folder}/{}", entry.file_name().to_str().unwrap()))
        // A module is named by its folder, where it has one.
        .filter(|path| !named.iter().any(|name| name == path || *path == format!("{name}.rs")))
        .collect();
    assert!(left_out.is_empty(), "CONTRIBUTING.md says nothing of {left_out:?}");
}

#[test]
fn every_path_of_the_code_that_a_page_names_is_there() {
    let mut seen = 0;
    for page in ["CONTRIBUTING.md", "docs/architecture.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let of_code = |span: &String| span.starts_with("src/") || span.starts_with("crates/");
        for path in code_spans(&text).into_iter().filter(of_code) {
            seen += 1;
            assert!(root().join(&path).exists(), "{page}: there is no {path}");
        }
    }
    assert!(seen >= 60, "{seen} paths were found");
}

/// The reason for which a relative link of a page leads nowhere.
fn breach(page: &Path, target: &str) -> Option<&'static str> {
    if target.starts_with('/') {
        return Some("it is not relative to its page");
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let file = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    let Some(file) = file.canonicalize().ok().filter(|file| file.starts_with(root())) else {
        return Some("there is no such file");
    };
    let found = heading.is_none_or(|heading| {
        fs::read_to_string(&file).is_ok_and(|text| anchors(&text).iter().any(|anchor| anchor == heading))
    });
    (!found).then_some("there is no such heading")
}

/// The targets of inline links, images and link definitions, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let (target, after) = after.split_once(')').unwrap_or((after, ""));
            links.extend(target.split_whitespace().next().map(|target| (number, target.to_owned())));
            rest = after;
        }
        let definition = line.strip_prefix('[').and_then(|line| line.split_once("]: "));
        links.extend(definition.map(|(_, target)| (number, target.trim().to_owned())));
    }
    links
}

/// The `#fragment`s that a link may have: the headings, as GitHub names them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        let Some(title) = line[level..].strip_prefix(' ').filter(|_| (1..=6).contains(&level)) else { continue };
        let anchor: String = without_targets(title)
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let nth = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(nth).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// The lines that are not in a block of code, each with its number from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// A line without its `code`, in which a bracket is no link.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// What stands as `code` in the lines that are not in a block of code.
fn code_spans(text: &str) -> Vec<String> {
    prose(text)
        .flat_map(|(_, line)| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// A heading's text: of `[more](x.md)` only `more`.
fn without_targets(title: &str) -> String {
    let mut parts = title.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, after)| after))
}

fn is_relative(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    !scheme.is_some_and(|scheme| scheme.chars().all(char::is_alphabetic))
}

/// The pages of the documentation, as absolute paths.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<_> = ROOT_PAGES.iter().map(|page| root().join(page)).collect();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > ROOT_PAGES.len() + 10, "the pages were found");
    pages.sort();
    pages
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap()
}
