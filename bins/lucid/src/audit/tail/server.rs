//! Decisions in the memory of a running process.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::TailArgs;
use super::entry::Entry;
use crate::audit::Format;
use crate::audit::remote::{RejectedError, Remote, send};
use crate::error::{Result, ResultExt};

const INTERVAL: Duration = Duration::from_secs(1);
const MOST: usize = 1000;

#[derive(Debug, Deserialize)]
struct Page {
    replica: String,
    next: Option<String>,
    latest: String,
    missed: u64,
    decisions: Vec<Box<RawValue>>,
}

impl Page {
    /// Returns the process identifier in the cursor, and the number of the latest decision.
    fn run(&self) -> (&str, u64) {
        let (run, number) = self.latest.rsplit_once('-').unwrap_or((&self.latest, ""));
        (run, number.parse().unwrap_or(0))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    decided: u64,
    in_memory: u64,
}

struct Server<'a> {
    args: &'a TailArgs,
    url: &'a Url,
    remote: Remote,
    /// Cursor of the next page; `None` after a restart of the process.
    cursor: Option<String>,
    /// Number of the last printed decision, by process.
    seen: HashMap<String, u64>,
    answered: Timestamp,
    /// Latest reported error; repetitions are not logged.
    trouble: Option<String>,
}

pub(super) async fn tail(
    args: &TailArgs,
    url: &Url,
    shutdown: impl Future<Output = ()>,
    output: &mut impl Write,
) -> Result<()> {
    let mut shutdown = std::pin::pin!(shutdown);
    let mut server = Server {
        args,
        url,
        remote: args.access.remote(url)?,
        cursor: None,
        seen: HashMap::new(),
        answered: Timestamp::now(),
        trouble: None,
    };
    let latest = tokio::select! {
        latest = server.latest() => latest?,
        () = &mut shutdown => return Ok(()),
    };
    print(args, &latest, output).failed_to_print()?;
    if !args.follow {
        return Ok(());
    }
    loop {
        let fresh = tokio::select! {
            fresh = async {
                tokio::time::sleep(INTERVAL).await;
                server.fresh().await
            } => fresh,
            () = &mut shutdown => return Ok(()),
        };
        print(args, &fresh, output).failed_to_print()?;
    }
}

fn print(args: &TailArgs, decisions: &[Box<RawValue>], output: &mut impl Write) -> io::Result<()> {
    for decision in decisions {
        let line = decision.get();
        match serde_json::from_str::<Entry>(line) {
            Ok(entry) if args.output == Format::Text => writeln!(output, "{}", entry.text(line.as_bytes()))?,
            _ => writeln!(output, "{line}")?,
        }
    }
    output.flush()
}

impl Server<'_> {
    /// Returns the latest decisions, oldest first.
    async fn latest(&mut self) -> Result<Vec<Box<RawValue>>> {
        let mut latest = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let wanted = (self.args.lines - latest.len()).clamp(1, MOST).to_string();
            let page = self.page(&[("limit", &wanted), ("cursor", cursor.as_deref().unwrap_or(""))]).await?;
            if self.cursor.is_none() {
                let (run, number) = page.run();
                self.seen.insert(run.to_owned(), number);
                self.cursor = Some(page.latest);
            }
            latest.extend(page.decisions);
            latest.truncate(self.args.lines);
            cursor = page.next;
            if cursor.is_none() || latest.len() == self.args.lines {
                latest.reverse();
                return Ok(latest);
            }
        }
    }

    async fn fresh(&mut self) -> Vec<Box<RawValue>> {
        let mut fresh = Vec::new();
        loop {
            let page = match &self.cursor {
                Some(cursor) => self.page_after(cursor).await,
                None => self.first_page().await,
            };
            match page {
                // The process restarted, or another replica responds.
                Err(error) if self.cursor.is_some() && is_gone(&*error) => {
                    self.cursor = None;
                }
                Err(error) => {
                    let error = lucid_shared::with_causes(&*error);
                    if self.trouble.as_ref() != Some(&error) {
                        tracing::warn!("{error}; retrying");
                        self.trouble = Some(error);
                    }
                    return fresh;
                }
                Ok(page) => {
                    if self.take(page, &mut fresh) {
                        return fresh;
                    }
                }
            }
        }
    }

    async fn page_after(&self, cursor: &str) -> Result<Page> {
        self.page(&[("order", "oldest"), ("limit", &MOST.to_string()), ("cursor", cursor)]).await
    }

    /// Requests the first page of a process that has not answered before.
    async fn first_page(&self) -> Result<Page> {
        let page = self.page(&[("order", "oldest"), ("limit", &MOST.to_string())]).await?;
        let (run, _) = page.run();
        if !self.seen.contains_key(run) {
            let status: Status = self.get(&format!("{}/status", self.url.path()), &[]).await?;
            let gone = match status.decided.saturating_sub(status.in_memory) {
                0 => String::new(),
                count => {
                    format!(
                        "; {count} decisions of this one were overwritten in memory before they were read"
                    )
                }
            };
            tracing::warn!(
                replica = page.replica,
                "another process responds: decisions of the previous one from {} to its end were not seen{gone}",
                self.answered
            );
        }
        Ok(page)
    }

    /// Takes the new decisions of a page. Returns `true` if there are no more.
    fn take(&mut self, page: Page, fresh: &mut Vec<Box<RawValue>>) -> bool {
        if page.missed > 0 {
            let (missed, replica) = (page.missed, &page.replica);
            tracing::warn!(replica, "{missed} decisions were overwritten in memory before they were read");
        }
        let number = |it: &RawValue| serde_json::from_str::<Entry>(it.get()).ok().and_then(|it| it.number);
        let seen = self.seen.entry(page.run().0.to_owned()).or_insert(0);
        let full = page.decisions.len() == MOST;
        for decision in page.decisions {
            if let Some(number) = number(&decision).filter(|number| *number > *seen) {
                *seen = number;
                fresh.push(decision);
            }
        }
        self.cursor = page.next.or(Some(page.latest));
        self.answered = Timestamp::now();
        if self.trouble.take().is_some() {
            tracing::info!(replica = page.replica, "responding again");
        }
        !full
    }

    async fn page(&self, parameters: &[(&str, &str)]) -> Result<Page> {
        let TailArgs { namespace, decision, ticket, .. } = self.args;
        let filters = [
            ("namespace", namespace.as_deref()),
            ("decision", decision.map(super::Outcome::as_str)),
            ("ticket", ticket.as_deref()),
        ];
        let filters = filters.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let query: Vec<_> = filters.chain(parameters.iter().copied()).collect();
        self.get(self.url.path(), &query).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T> {
        let mut url = self.url.clone();
        url.set_path(path);
        url.query_pairs_mut().clear().extend_pairs(query);
        let (status, text) = send(self.remote.request(Method::GET, url), self.url).await?;
        if status != StatusCode::OK {
            let said = serde_json::from_str::<serde_json::Value>(&text).ok();
            let said = said.and_then(|it| Some(it.get("error")?.as_str()?.to_owned())).unwrap_or(text);
            return Err(RejectedError::new(self.url, status, &said).into());
        }
        let parsed = serde_json::from_str(&text);
        parsed
            .map_err(|error| format!("{} did not respond with a page of decisions: {error}", self.url).into())
    }
}

fn is_gone(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<RejectedError>().is_some_and(|it| it.status == StatusCode::GONE)
}
