//! Parser for the subset of the Containerfile format used by images without a base.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use lucid_e2e::Error;
use parse_dockerfile::{Command, Instruction, Source};
use serde_json::{Map, Value, json};

/// Creation time of all images: the epoch, for reproducible digests.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// A parsed Containerfile.
#[derive(Debug)]
pub(crate) struct Containerfile {
    pub(crate) copies: Vec<Copy>,
    pub(crate) config: Config,
}

/// A file or folder of the context, and its destination. The content of a folder is copied to the destination.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) source: String,
    pub(crate) destination: String,
}

/// Runtime configuration of the image.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Numeric `uid:gid`: the kubelet cannot verify `runAsNonRoot` for a name.
    pub(crate) user: String,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) command: Vec<String>,
    /// `KEY=value`, in file order.
    pub(crate) env: Vec<String>,
    /// Exposed ports, such as `8080/tcp`.
    pub(crate) ports: BTreeSet<String>,
    pub(crate) labels: BTreeMap<String, String>,
}

impl Config {
    /// Configuration document of the image specification.
    pub(crate) fn document(&self) -> Value {
        let Self { user, entrypoint, command, env, ports, labels } = self;
        let mut run = Map::new();
        run.insert("User".into(), json!(user));
        run.insert("Entrypoint".into(), json!(entrypoint));
        run.insert("WorkingDir".into(), json!("/"));
        run.insert("Labels".into(), json!(labels));
        if !command.is_empty() {
            run.insert("Cmd".into(), json!(command));
        }
        if !env.is_empty() {
            run.insert("Env".into(), json!(env));
        }
        if !ports.is_empty() {
            let ports: Map<_, _> = ports.iter().map(|port| (port.clone(), json!({}))).collect();
            run.insert("ExposedPorts".into(), ports.into());
        }
        json!({
            "created": CREATED,
            "config": run,
            "history": [{"created": CREATED, "created_by": "cargo xtask images"}],
        })
    }
}

impl Containerfile {
    /// Parses `text`. `arguments` correspond to `--build-arg`; any other `ARG` is an error.
    pub(crate) fn parse(text: &str, arguments: &BTreeMap<&str, String>) -> Result<Self, Error> {
        let file = parse_dockerfile::parse(text)?;
        let mut declared = BTreeMap::new();
        let (mut copies, mut config) = (Vec::new(), Config::default());
        for instruction in &file.instructions {
            match instruction {
                Instruction::From(from) if from.image.value == "scratch" => {}
                Instruction::From(from) => {
                    return Err(format!("FROM: found {}, accepted scratch", from.image.value).into());
                }
                Instruction::Arg(arg) => {
                    let name = arg.arguments.value.as_ref();
                    let value = arguments.get(name);
                    let value = value.ok_or_else(|| format!("ARG: nothing gives a value to {name}"))?;
                    declared.insert(name.to_owned(), value.clone());
                }
                Instruction::Label(label) => {
                    let (key, value) = pair("LABEL", &label.arguments.value, &declared)?;
                    config.labels.insert(key, value);
                }
                Instruction::Env(env) => {
                    let (key, value) = pair("ENV", &env.arguments.value, &declared)?;
                    config.env.push(format!("{key}={value}"));
                }
                Instruction::Copy(copy) => {
                    let ([Source::Path(source)], []) = (copy.src.as_slice(), copy.options.as_slice()) else {
                        return Err("COPY: accepted one path of the context and where it goes".into());
                    };
                    let (source, destination) = (&source.value, &copy.dest.value);
                    if !destination.starts_with('/') || source.split('/').any(|part| part == "..") {
                        let message = "accepted a path within the context and one that starts with /";
                        return Err(format!("COPY: found {source} {destination}, {message}").into());
                    }
                    copies.push(Copy { source: source.to_string(), destination: destination.to_string() });
                }
                Instruction::User(user) => config.user = numeric_user(&user.arguments.value)?,
                Instruction::Expose(expose) => {
                    let ports = expose.arguments.iter().map(|port| port.value.as_ref());
                    config.ports.extend(ports.map(|port| match port.contains('/') {
                        true => port.to_owned(),
                        false => format!("{port}/tcp"),
                    }));
                }
                Instruction::Entrypoint(entrypoint) => {
                    config.entrypoint = words("ENTRYPOINT", &entrypoint.arguments)?;
                }
                Instruction::Cmd(cmd) => config.command = words("CMD", &cmd.arguments)?,
                other => {
                    return Err(format!("found {other:?}, which an image without a base cannot need").into());
                }
            }
        }
        if config.entrypoint.is_empty() || config.user.is_empty() {
            return Err("ENTRYPOINT and USER have to be there".into());
        }
        Ok(Self { copies, config })
    }
}

/// Parses `KEY="value"` or `KEY=value`, one per instruction.
fn pair(
    instruction: &str,
    text: &str,
    declared: &BTreeMap<String, String>,
) -> Result<(String, String), Error> {
    let refused = || format!("{instruction}: found {text}, accepted one KEY=\"value\"");
    let (key, value) = text.trim().split_once('=').ok_or_else(refused)?;
    let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let value = match quoted {
        Some(value) if !value.contains(['"', '\\']) => value,
        None if !value.contains(['"', '\\', '\'', ' ', '\t']) => value,
        _ => return Err(refused().into()),
    };
    if key.is_empty() || key.contains(char::is_whitespace) {
        return Err(refused().into());
    }
    Ok((key.to_owned(), expand(value, declared)?.into_owned()))
}

/// Expands `${NAME}` to the value of the argument.
fn expand<'t>(text: &'t str, declared: &BTreeMap<String, String>) -> Result<Cow<'t, str>, Error> {
    let mut expanded = Cow::Borrowed(text);
    for (name, value) in declared {
        let variable = format!("${{{name}}}");
        if expanded.contains(&variable) {
            expanded = expanded.replace(&variable, value).into();
        }
    }
    if expanded.contains('$') {
        return Err(format!("found {text}, accepted ${{NAME}} of an ARG that comes before").into());
    }
    Ok(expanded)
}

fn numeric_user(text: &str) -> Result<String, Error> {
    let parts: Vec<_> = text.split(':').map(str::parse::<u32>).collect();
    match parts.as_slice() {
        [Ok(1..), Ok(1..)] => Ok(text.to_owned()),
        _ => Err(format!("USER: found {text}, accepted UID:GID, two numbers above 0").into()),
    }
}

fn words(instruction: &str, command: &Command<'_>) -> Result<Vec<String>, Error> {
    match command {
        Command::Exec(words) => Ok(words.value.iter().map(|word| word.value.to_string()).collect()),
        // The image has no shell for the shell form.
        _ => Err(format!("{instruction}: accepted a list in JSON, such as [\"/program\", \"run\"]").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Containerfile, Error> {
        Containerfile::parse(text, &BTreeMap::from([("VERSION", "1.2.3".to_owned())]))
    }

    const REST: &str = "USER 65532:65532\nENTRYPOINT [\"/a\"]\n";

    #[test]
    fn the_instructions_of_an_image_without_a_base_are_understood() {
        let file = parse(
            "# A comment.\nFROM scratch\nARG VERSION\nLABEL a.version=\"v${VERSION}\"\nLABEL a.b=c\nENV KEY=\"two words\"\n\
             COPY a /a\nCOPY folder /\nEXPOSE 8080 53/udp\nUSER 65532:65532\nENTRYPOINT [\"/a\", \"run\"]\nCMD [\"--x\"]\n",
        )
        .unwrap();
        let copy = |source: &str, destination: &str| Copy {
            source: source.to_owned(),
            destination: destination.to_owned(),
        };
        assert_eq!(file.copies, [copy("a", "/a"), copy("folder", "/")]);
        let document = file.config.document();
        assert_eq!(document["created"], CREATED);
        assert_eq!(
            document["config"],
            json!({
                "User": "65532:65532",
                "Entrypoint": ["/a", "run"],
                "Cmd": ["--x"],
                "Env": ["KEY=two words"],
                "ExposedPorts": {"53/udp": {}, "8080/tcp": {}},
                "Labels": {"a.b": "c", "a.version": "v1.2.3"},
                "WorkingDir": "/",
            })
        );
        let Config { user, entrypoint, command, env, ports, labels } = file.config;
        assert_eq!(user, "65532:65532");
        assert_eq!(entrypoint, ["/a", "run"]);
        assert_eq!(command, ["--x"]);
        assert_eq!(env, ["KEY=two words"]);
        assert_eq!(ports.into_iter().collect::<Vec<_>>(), ["53/udp", "8080/tcp"]);
        assert_eq!(
            labels.into_iter().collect::<Vec<_>>(),
            [("a.b".to_owned(), "c".to_owned()), ("a.version".to_owned(), "v1.2.3".to_owned())]
        );
    }

    #[test]
    fn what_would_not_come_out_as_written_is_refused() {
        for (line, told) in [
            ("RUN true", "without a base"),
            ("ARG NOBODY", "NOBODY"),
            ("LABEL a=\"${NOBODY}\"", "NOBODY"),
            ("LABEL a=1 b=2", "one KEY"),
            ("LABEL a", "one KEY"),
            ("COPY a b", "starts with /"),
            ("COPY ../a /a", "within the context"),
            ("COPY --chown=1 a /a", "one path"),
            ("COPY a b /c", "one path"),
            ("USER 0:0", "above 0"),
            ("USER 65532", "UID:GID"),
            ("USER root", "above 0"),
            ("ENTRYPOINT /a run", "a list in JSON"),
        ] {
            let message = parse(&format!("FROM scratch\n{REST}{line}\n")).unwrap_err().to_string();
            assert!(message.contains(told), "{line}: {message}");
        }
        assert!(parse(&format!("FROM debian\n{REST}")).is_err());
        assert!(parse("FROM scratch\nUSER 1:1\n").is_err());
        assert!(parse("FROM scratch\nENTRYPOINT [\"/a\"]\n").is_err());
    }
}
