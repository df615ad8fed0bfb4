//! The layers of docs/ARCHITECTURE.md: who imports from whom.
//!
//! Imports are read as text: `use` declarations and paths that begin with `crate`, `super` or `self`. What stands in a
//! module of tests does not count.
//!
//! And the names in the pages about the sources: each is in a source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The layers of the library, the lowest first. A file imports from lower layers, from its own, and from no other. Layers
/// on one line do not know each other.
const LAYERS: &[&[&str]] = &[
    &["tuning", "codes"],
    &["sys", "copy"],
    &["protocol"],
    &["segment"],
    &["liveness"],
    &["element"],
    &["error"],
    &["rank"],
    &["communicator"],
    &["collective"],
    &["region"],
    &["symmetric"],
    &["message"],
    &["endpoint"],
    &["job"],
    &["nodes"],
];

/// What a layer must not import although it is lower.
const FORBIDDEN: &[(&str, &str)] = &[
    ("protocol", "crate::sys"),
    ("protocol", "crate::copy::publish"),
    ("protocol", "crate::copy::lines"),
    ("protocol", "crate::copy::fold"),
];

#[test]
fn no_import_goes_up() {
    let crate_ = Crate::read("src", "lib.rs");
    let layer = |folder: &str| LAYERS.iter().position(|layer| layer.contains(&folder));
    let mut wrong = Vec::new();
    for (from, imports) in &crate_.imports {
        let from_folder = folder(from);
        let Some(from_layer) = layer(from_folder) else {
            assert!(from == "lib.rs", "{from} belongs to no layer: name its folder in LAYERS");
            continue;
        };
        for to in imports {
            let to_folder = folder(to);
            let goes_up = layer(to_folder).is_none_or(|to_layer| to_layer >= from_layer);
            if to_folder != from_folder && goes_up {
                wrong.push(format!("{from} imports from {to}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_protocols_see_only_views_of_the_data_plane() {
    for (path, source) in sources(Path::new("src")) {
        for (layer, forbidden) in FORBIDDEN {
            let inside = folder(&path) == *layer;
            assert!(!(inside && source.contains(forbidden)), "{path} mentions {forbidden}");
        }
    }
}

#[test]
fn no_files_import_from_each_other() {
    let crates = [
        ("src", "lib.rs"),
        ("cli/src", "main.rs"),
        ("cobre/src", "lib.rs"),
        ("loom-tests", "main.rs"),
        ("shuttle-tests", "main.rs"),
    ];
    let mut circles = Vec::new();
    for (root, top) in crates {
        let crate_ = Crate::read(root, top);
        assert!(crate_.imports.values().any(|imports| !imports.is_empty()), "no import was found in {root}");
        circles.extend(crate_.circles().into_iter().map(|circle| format!("{root}: {}", circle.join(", "))));
    }
    assert!(circles.is_empty(), "files that import from each other:\n{}", circles.join("\n"));
}

#[test]
fn a_circle_is_found() {
    let imports = [("a", ["b"]), ("b", ["c"]), ("c", ["b"]), ("d", ["a"])];
    let imports = imports.map(|(from, to)| (from.to_owned(), to.map(str::to_owned).into())).into();
    assert_eq!(Crate { imports }.circles(), [["b", "c"]]);
}

#[test]
fn imports_are_read_from_declarations_and_from_paths() {
    let text = "use crate::a::{self, b::{C, D}, E as F};\nfn f() { super::g::h(); crate::a::b(); }";
    let expected =
        ["crate::a", "crate::a::E", "crate::a::b", "crate::a::b::C", "crate::a::b::D", "super::g::h"];
    assert_eq!(paths(text).into_iter().collect::<Vec<_>>(), expected);
}

/// The files of a crate, and from which others each imports. Paths are from its root.
struct Crate {
    imports: BTreeMap<String, BTreeSet<String>>,
}

impl Crate {
    fn read(root: &str, top: &str) -> Self {
        let files: BTreeMap<String, String> = sources(Path::new(root))
            .into_iter()
            .filter(|(path, _)| root != "cobre/src" || !path.starts_with("bin/"))
            .collect();
        // By module, its file; a crate's root has the empty path.
        let modules: BTreeMap<Vec<String>, String> = files
            .keys()
            .map(|path| (if path == top { Vec::new() } else { module_of(path) }, path.clone()))
            .collect();
        // What a module hands on from its children: by its path and the name, the child's file.
        let mut handed_on = BTreeMap::new();
        for (module, path) in &modules {
            for declaration in declarations(&files[path]).filter(|declaration| declaration.public) {
                for full in declaration.paths() {
                    let Some((name, _)) = full.last().map(|name| (name.clone(), ())) else { continue };
                    if let Some(target) = resolve(&modules, &BTreeMap::new(), module, &full) {
                        handed_on.insert((module.clone(), name), target);
                    }
                }
            }
        }
        let mut imports = BTreeMap::new();
        for (module, path) in &modules {
            let own = |target: &String| target != path;
            let private = without_public_declarations(&files[path]);
            let mut found: BTreeSet<String> = BTreeSet::new();
            for import in paths(&private) {
                let full: Vec<String> = import.split("::").map(str::to_owned).collect();
                found.extend(resolve(&modules, &handed_on, module, &full).filter(own));
            }
            // What a module hands on of its own parts is no import.
            let foreign = |target: &String| !module_of(target).starts_with(module);
            for declaration in declarations(&files[path]).filter(|declaration| declaration.public) {
                for full in declaration.paths() {
                    found.extend(resolve(&modules, &handed_on, module, &full).filter(own).filter(foreign));
                }
            }
            imports.insert(path.clone(), found);
        }
        Crate { imports }
    }

    /// Sets of files each of which reaches all others of the set.
    fn circles(&self) -> Vec<Vec<String>> {
        let reach: BTreeMap<&String, BTreeSet<&String>> =
            self.imports.keys().map(|file| (file, self.reached_from(file))).collect();
        let mut circles = BTreeSet::new();
        for (file, reached) in &reach {
            let circle: Vec<String> = reached
                .iter()
                .filter(|other| reach.get(*other).is_some_and(|back| back.contains(file)))
                .map(|other| (*other).clone())
                .collect();
            if !circle.is_empty() {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    fn reached_from(&self, file: &String) -> BTreeSet<&String> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&String> = self.imports[file].iter().collect();
        while let Some(file) = next.pop() {
            if reached.insert(file) {
                next.extend(self.imports.get(file).into_iter().flatten());
            }
        }
        reached
    }
}

/// The file that a path leads to: that of the longest module in it.
fn resolve(
    modules: &BTreeMap<Vec<String>, String>,
    handed_on: &BTreeMap<(Vec<String>, String), String>,
    from: &[String],
    path: &[String],
) -> Option<String> {
    let mut base = from.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|step| step == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        // A child, as in `use child::Name`, or another crate.
        child => {
            let child: Vec<String> = from.iter().cloned().chain([child.to_owned()]).collect();
            modules.get(&child)?;
        }
    }
    for step in rest {
        let next: Vec<String> = base.iter().cloned().chain([step.clone()]).collect();
        if !modules.contains_key(&next) {
            let target = handed_on.get(&(base.clone(), step.clone()));
            return target.or_else(|| modules.get(&base)).cloned();
        }
        base = next;
    }
    modules.get(&base).cloned()
}

/// A `use` declaration.
struct Declaration {
    public: bool,
    tree: String,
}

impl Declaration {
    fn paths(&self) -> Vec<Vec<String>> {
        flatten(&self.tree).iter().map(|path| path.split("::").map(str::to_owned).collect()).collect()
    }
}

fn declarations(source: &str) -> impl Iterator<Item = Declaration> {
    let statements = source.split_inclusive(';').filter_map(|statement| {
        let (before, tree) = statement.split_once("use ")?;
        let last = before.lines().last().unwrap_or_default().trim();
        let starts = last.is_empty() || last.starts_with("pub");
        starts.then(|| Declaration {
            public: last.starts_with("pub"),
            tree: tree.trim_end_matches(';').to_owned(),
        })
    });
    statements.collect::<Vec<_>>().into_iter()
}

/// The source without what it hands on, which is no import of its own.
fn without_public_declarations(source: &str) -> String {
    source
        .split_inclusive(';')
        .filter(|statement| {
            let handed_on = statement
                .split_once("use ")
                .is_some_and(|(before, _)| before.lines().last().unwrap_or_default().trim().starts_with("pub"));
            !handed_on
        })
        .collect()
}

/// All paths of a source that may lead to another file.
fn paths(source: &str) -> BTreeSet<String> {
    let mut found: BTreeSet<String> =
        declarations(source).flat_map(|declaration| flatten(&declaration.tree)).collect();
    // In expressions and types.
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for line in source.lines().filter(|line| !line.trim_start().starts_with("use ")) {
        for word in line.split(|c: char| !is_path(c)) {
            let word = word.trim_matches(':');
            if ["crate::", "super::"].iter().any(|start| word.starts_with(start)) {
                found.insert(word.to_owned());
            }
        }
    }
    found
}

/// The paths of a tree such as `a::{b, c::{d, e}}`.
fn flatten(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        return if path.is_empty() { Vec::new() } else { vec![path.trim_end_matches("::self").to_owned()] };
    };
    let inside = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in inside.chars() {
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                parts.last_mut().expect("one was pushed").push(c);
            }
        }
    }
    let join =
        |part: &String| flatten(part).into_iter().map(|path| format!("{prefix}{path}")).collect::<Vec<_>>();
    parts.iter().flat_map(join).map(|path| path.trim_end_matches("::self").to_owned()).collect()
}

/// The folder that a file lies in, or, at the top, the file itself.
fn folder(path: &str) -> &str {
    path.split('/').next().map_or(path, |first| first.trim_end_matches(".rs"))
}

fn module_of(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').map(str::to_owned).collect()
}

/// All sources under a folder, by path, without comments and without their modules of tests.
fn sources(root: &Path) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(root);
    let mut found = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.is_dir() {
                if !path.ends_with("tests") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !["tests.rs", "testing.rs", "contract.rs", "programs.rs"]
                    .iter()
                    .any(|name| path.ends_with(name))
            {
                let text = fs::read_to_string(&path).expect("a source is text");
                let name = path.strip_prefix(&root).expect("it is under the root").to_str().expect("a name");
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
                found.insert(name.to_owned(), lines.map(|line| format!("{line}\n")).collect());
            }
        }
    }
    found
}

/// The pages that explain the sources name functions, tests and files that exist.
#[test]
fn documents_name_what_exists() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut sources = String::new();
    let mut folders =
        ["src", "tests", "loom-tests", "shuttle-tests", "benches"].map(|name| root.join(name)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the sources") {
            let path = entry.expect("an entry").path();
            sources += &path.display().to_string();
            match path.extension().and_then(|ending| ending.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some("rs" | "c" | "py") => sources += &fs::read_to_string(&path).expect("a source is text"),
                // The names of the models, which are made from parts.
                _ if path.ends_with("EXPLORED.md") => sources += &fs::read_to_string(&path).expect("text"),
                _ => {}
            }
        }
    }
    for page in ["CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/GLOSSARY.md", "docs/messages.md"] {
        let text = fs::read_to_string(root.join(page)).expect("a page");
        let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let words = code.flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
        let names =
            words.filter(|word| word.contains('_') && word.bytes().any(|byte| byte.is_ascii_lowercase()));
        let unknown: Vec<&str> =
            names.filter(|name| !name.starts_with("MPI_") && !sources.contains(name)).collect();
        assert!(unknown.is_empty(), "{page} names {unknown:?}");
    }
}
