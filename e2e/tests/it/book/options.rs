//! Options and variables: docs/options.md lists all, and no page names others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use lucid_e2e::{page::blocks, program};
use regex::Regex;

use super::{none, output, pages, prose, read, sources, spans};

const PROGRAMS: [&str; 6] =
    ["lucid", "lucid-operator", "lucid-validator", "lucid-verifier", "lucid-init", "lucid-egress"];

const HEAD: &str = "# Options\n\nAll programs with all their options, as `--help` prints them. `[env: …]` is the equivalent variable; an \
option on the command line takes precedence. Options that several commands have are described once; the others refer to that command. \
All commands have `--help` and the options of logging, programs `--version`. [Configuration](configuration.md) lists the most common settings by subject.\n";

/// Commands of the programs, such as `lucid certs status`, with the output of `--help`.
fn helps() -> BTreeMap<String, String> {
    fn collect(program: &Path, words: &mut Vec<String>, helps: &mut BTreeMap<String, String>) {
        let mut arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = output(program, &arguments);
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let listed = listed.take_while(|line| !line.is_empty());
        let named = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let commands: Vec<_> =
            named.filter(|it| !it.is_empty() && *it != "help").map(str::to_owned).collect();
        helps.insert(words.join(" "), help);
        for command in commands {
            words.push(command);
            collect(program, words, helps);
            words.pop();
        }
    }
    let mut helps = BTreeMap::new();
    for name in PROGRAMS {
        collect(&program(name).unwrap(), &mut vec![name.to_owned()], &mut helps);
    }
    helps
}

fn flags(help: &str) -> BTreeSet<String> {
    let flag = Regex::new(r"(?m)^ +(?:-\w, )?(--[a-z][a-z0-9-]*)").unwrap();
    flag.captures_iter(help).map(|flag| flag[1].to_owned()).collect()
}

/// Splits the output of `--help` before each heading.
fn sections(help: &str) -> Vec<&str> {
    let mut starts = vec![0];
    let mut at = 0;
    for line in help.split_inclusive('\n') {
        if at > 0 && line.starts_with(|first: char| first.is_ascii_uppercase()) && line.ends_with(":\n") {
            starts.push(at);
        }
        at += line.len();
    }
    starts.push(help.len());
    starts.windows(2).map(|pair| &help[pair[0]..pair[1]]).collect()
}

/// Splits a section before each option.
fn options(section: &str) -> Vec<&str> {
    let option = Regex::new(r"(?m)^ {2,6}-").unwrap();
    let starts = option.find_iter(section).map(|found| found.start());
    let starts: Vec<_> = [0].into_iter().chain(starts).chain([section.len()]).collect();
    starts.windows(2).map(|pair| &section[pair[0]..pair[1]]).collect()
}

#[test]
fn the_page_of_options_equals_the_help() {
    let mut right = HEAD.to_owned();
    // Sections and options, with the first command that has them.
    let mut known = BTreeMap::<String, String>::new();
    let name_of_option = Regex::new(r"--[a-z-]+").unwrap();
    let shared = Regex::new(
        r"(?m)^  (?:-h, --help\n +Print help.*\n|-V, --version\n +Print version\n|help +Print this.*\n| +\[possible values: true, false\]\n)",
    )
    .unwrap();
    for (command, help) in helps() {
        let level = "#".repeat(command.split(' ').count() + 1);
        let help: String = help.lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
        let help = shared.replace_all(&help, "");
        let mut text = String::new();
        for section in sections(&help) {
            let name = section.lines().next().unwrap_or_default();
            if section.trim() == "Options:" {
                continue;
            }
            if let Some(first) = known.get(section) {
                if name != "Logging:" {
                    writeln!(text, "{name} as of `{first}`\n").unwrap();
                }
                continue;
            }
            for option in options(section) {
                match (known.get(option.trim_end()), name_of_option.find(option)) {
                    (Some(first), Some(name)) => {
                        writeln!(text, "      {}: as of `{first}`\n", name.as_str()).unwrap();
                    }
                    _ => text += option,
                }
                known.entry(option.trim_end().to_owned()).or_insert_with(|| command.clone());
            }
            known.insert(section.to_owned(), command.clone());
        }
        write!(right, "\n{level} {command}\n\n```text\n{}\n```\n", text.trim_end()).unwrap();
    }
    let instead = Path::new(env!("CARGO_TARGET_TMPDIR")).join("options.md");
    fs::write(&instead, &right).unwrap();
    let differs = read("docs/options.md") != right;
    assert!(!differs, "docs/options.md is not what the programs say; {} is", instead.display());
}

#[test]
fn documented_options_exist() {
    let helps = helps();
    // At the start of a command: as an argument it is the name of an object.
    let call =
        r"(?m)(?:^(?:\$ )?|[|;&(]) *(lucid(?:-(?:operator|validator|verifier|init))?)((?: +[^|;&>`\s]+)+)";
    let call = Regex::new(call).unwrap();
    let flag = Regex::new(r"(--[a-z][a-z0-9-]*)").unwrap();
    let mut found = BTreeSet::new();
    let mut calls = 0;
    for page in pages().iter().filter(|page| page.path != "docs/options.md") {
        let prose = prose(&page.text);
        let mut commands: Vec<String> = spans(&prose).map(str::to_owned).collect();
        let shell = blocks(&page.text)
            .into_iter()
            .filter(|(info, _)| ["sh", "console"].iter().any(|it| info.starts_with(it)));
        commands.extend(shell.map(|(_, text)| text.replace("\\\n", " ")));
        for (text, call) in
            commands.iter().flat_map(|text| call.captures_iter(text).map(move |call| (text, call)))
        {
            // Longest known command.
            let words: Vec<_> =
                call[2].split_whitespace().take_while(|word| !word.starts_with('-')).collect();
            let named =
                (0..=words.len()).rev().map(|count| [&[&call[1]], &words[..count]].concat().join(" "));
            let Some(command) = named.into_iter().find(|command| helps.contains_key(command)) else {
                continue;
            };
            let mut known = flags(&helps[&command]);
            known.extend(["--help", "--version", "--log-filter", "--log-format"].map(str::to_owned));
            calls += 1;
            for flag in flag.captures_iter(&call[2]).map(|flag| flag[1].to_owned()) {
                if !known.contains(&flag) {
                    let line = text.lines().next().unwrap_or_default();
                    found.insert(format!("{}: {command} has no {flag}: {line}", page.path));
                }
            }
        }
    }
    assert!(calls > 80, "{calls} calls");
    none(&found);
}

#[test]
fn documented_variables_exist() {
    let variable = Regex::new(r"\bLUCID_[A-Z0-9_]*[A-Z0-9]").unwrap();
    let mut known: BTreeSet<String> = BTreeSet::new();
    for text in helps().into_values().chain(sources().into_iter().map(|source| source.text)) {
        known.extend(variable.find_iter(&text).map(|found| found.as_str().to_owned()));
    }
    let mut found = BTreeSet::new();
    for page in pages() {
        let unknown = variable.find_iter(&page.text).filter(|found| !known.contains(found.as_str()));
        found.extend(unknown.map(|variable| format!("{}: there is no {}", page.path, variable.as_str())));
    }
    none(&found);
}

#[test]
fn documented_defaults_are_those_of_the_options() {
    let run = &helps()["lucid-operator run"];
    let variable = Regex::new(r"\[env: (\w+)=\]").unwrap();
    let default = Regex::new(r"\[default: (.*)\]").unwrap();
    let mut defaults = BTreeMap::new();
    for option in run.split("\n      --").skip(1) {
        let flag =
            option.split(|it: char| !it.is_ascii_alphanumeric() && it != '-').next().unwrap_or_default();
        let variable = variable.captures(option).map(|it| it[1].to_owned());
        let default = default.captures(option).map(|it| it[1].to_owned());
        for name in [format!("--{flag}")].into_iter().chain(variable) {
            defaults.insert(name, default.clone());
        }
    }
    let variable = Regex::new(r"`(LUCID_\w+|--[a-z-]+)`").unwrap();
    let page = read("docs/configuration.md");
    let mut found = BTreeSet::new();
    let mut compared = 0;
    for row in page.lines().filter(|line| line.starts_with("| `LUCID_") || line.starts_with("| `--")) {
        let cells: Vec<_> = row.split(" | ").collect();
        let variables = variable.captures_iter(cells[0]).map(|it| it[1].to_owned());
        let mut said: Vec<_> = cells[1].split(", ").collect();
        let variables: Vec<_> = variables.collect();
        if said.len() == 1 {
            said = said.repeat(variables.len());
        }
        for (variable, said) in variables.iter().zip(said) {
            let default = defaults
                .get(variable)
                .unwrap_or_else(|| panic!("{variable} is not an option of run"))
                .as_deref();
            let (said, agrees) = match (said.strip_prefix('`').and_then(|it| it.strip_suffix('`')), said) {
                (Some(value), _) => (value, default.is_none_or(|default| default == value)),
                (None, "none") => ("none", default.is_none()),
                (None, value) if value.parse::<u64>().is_ok() => (value, default == Some(value)),
                // Described in prose.
                _ => continue,
            };
            compared += 1;
            if !agrees {
                found.insert(format!("{variable}: the page says {said}, the program {default:?}"));
            }
        }
    }
    assert!(compared > 40, "{compared} defaults");
    none(&found);
}
