//! Asks the judges about a text.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, LazyLock},
    time::Instant,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use crate::{
    Direction, Judges, Mode, OnFailure, Passage, Role, Span, Verdict, cache::Key, judge::Member,
    protocol::BLOCKED, telemetry::Telemetry,
};

/// Maximum number of verdicts in progress that nobody waits for. Beyond it, observing judges are not asked.
static OBSERVED: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(256)));

/// Maximum length of a name or index in a message to the caller.
const MAX_STEP: usize = 32;

/// The judges of one exchange. A reload affects the next one.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    pub(crate) judges: Judges,
    pub(crate) telemetry: Arc<Telemetry>,
    /// Mode of the auditor.
    pub(crate) mode: Mode,
}

/// Consequence of the verdicts on a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allow,
    Deny(Denial),
    Mask(Vec<Span>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    /// The judge failed.
    pub(crate) is_failure: bool,
    pub(crate) rule: Cow<'static, str>,
    pub(crate) message: String,
}

impl Denial {
    /// Returns the kind of refusal.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.rule {
            _ if !self.is_failure => BLOCKED,
            Cow::Borrowed(kind @ ("unreadable" | "too_large")) => kind,
            _ => "judge_failed",
        }
    }

    /// Denies what cannot be judged.
    pub(crate) fn failure(kind: &'static str, message: String) -> Self {
        Self { is_failure: true, rule: Cow::Borrowed(kind), message }
    }

    /// Denies a text in which what `rule` found cannot be replaced, because of its `place`.
    pub(crate) fn irreplaceable(rule: &str, place: &str) -> Self {
        let message = format!("{rule} cannot be replaced in {place}");
        Self { is_failure: false, rule: Cow::Owned(rule.to_owned()), message }
    }
}

impl std::error::Error for Denial {}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Panel {
    /// Judges a whole text.
    pub(crate) fn judge<'a>(&'a self, passage: &'a Passage<'_>) -> BoxFuture<'a, Outcome> {
        let concerned: Vec<_> = self.judges.iter().filter(|member| member.concerns(passage)).collect();
        let key = concerned.iter().any(|member| member.cache.is_some()).then(|| Key::of(passage));
        let asked: Vec<_> =
            concerned.iter().map(|member| self.ask_and_report(member, passage, key)).collect();
        Box::pin(join_all(asked).map(Outcome::join))
    }

    /// Returns the consequence of one judge's verdict.
    fn ask_and_report<'a>(
        &'a self,
        member: &'a Arc<Member>,
        passage: &'a Passage<'_>,
        key: Option<Key>,
    ) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            if self.observes_aside(member) {
                self.observe(member, passage, key);
                return Outcome::Allow;
            }
            let outcome = self.ask(member, passage, key).await;
            self.report(member, passage, &outcome);
            if self.enforces(member) { outcome } else { Outcome::Allow }
        })
    }

    /// Returns `true` if verdicts of this judge have consequences.
    pub(crate) fn enforces(&self, member: &Member) -> bool {
        self.mode == Mode::Enforce && member.policy.mode == Mode::Enforce
    }

    /// Returns `true` for a judge that observes while others enforce: nothing waits for it.
    pub(crate) fn observes_aside(&self, member: &Member) -> bool {
        self.mode == Mode::Enforce && member.policy.mode == Mode::Observe
    }

    /// Asks a judge that nothing waits for, and reports its verdict.
    pub(crate) fn observe(&self, member: &Arc<Member>, passage: &Passage<'_>, key: Option<Key>) {
        let Ok(permit) = Arc::clone(&OBSERVED).try_acquire_owned() else {
            self.telemetry.count_failure(&member.name);
            return;
        };
        let (panel, member, passage) = (self.clone(), Arc::clone(member), passage.clone().into_owned());
        let asked = async move {
            let outcome = panel.ask(&member, &passage, key).await;
            panel.report(&member, &passage, &outcome);
            drop(permit);
        };
        tokio::spawn(asked.in_current_span());
    }

    /// Asks one judge. Whole texts have a key.
    pub(crate) async fn ask(&self, member: &Member, passage: &Passage<'_>, key: Option<Key>) -> Outcome {
        let name = member.name.as_str();
        let span = tracing::info_span!(
            "verdict",
            judge = name,
            direction = passage.direction.as_str(),
            bytes = passage.text.len(),
            action = tracing::field::Empty,
        );
        let begun = Instant::now();
        let verdict = member.judge(passage, key).instrument(span.clone()).await;
        self.telemetry.observe_duration(name, begun.elapsed());
        let outcome = match verdict {
            Ok(Verdict::Allow) => Outcome::Allow,
            Ok(Verdict::Mask(spans)) if spans.is_empty() => Outcome::Allow,
            Ok(Verdict::Mask(spans)) => {
                Outcome::Mask(spans.into_iter().map(|span| on_boundaries(span, &passage.text)).collect())
            }
            Ok(Verdict::Deny { rule, message }) => {
                let message = format!("{name}: {message}{}", place(passage));
                Outcome::Deny(Denial { is_failure: false, rule, message })
            }
            Err(error) => {
                self.telemetry.count_failure(name);
                tracing::warn!(judge = name, %error, "judge failed");
                match member.policy.on_failure {
                    OnFailure::Deny => {
                        let message = format!("{name}: the judge failed, so the text must not pass");
                        Outcome::Deny(Denial { is_failure: true, rule: Cow::Borrowed("failure"), message })
                    }
                    OnFailure::Allow => Outcome::Allow,
                }
            }
        };
        if outcome != Outcome::Allow {
            span.record("action", outcome.action());
        }
        outcome
    }

    /// Counts an outcome, and logs what it changes.
    pub(crate) fn report(&self, member: &Member, passage: &Passage<'_>, outcome: &Outcome) {
        let (name, action, is_enforced) = (&member.name, outcome.action(), self.enforces(member));
        let count = |rule: &Cow<'static, str>| {
            self.telemetry.count_verdict(name, passage.direction, (action, rule), is_enforced);
        };
        let log =
            |rule: &str, text: &str| self.telemetry.log(name, passage, (action, rule), text, is_enforced);
        match outcome {
            Outcome::Allow => count(&Cow::Borrowed("")),
            Outcome::Deny(denial) => {
                count(&denial.rule);
                log(&denial.rule, &passage.text);
            }
            Outcome::Mask(spans) => {
                for span in spans {
                    count(&span.rule);
                    log(&span.rule, &passage.text[span.range.clone()]);
                }
            }
        }
    }
}

impl Outcome {
    /// Returns the consequence of several verdicts on a text.
    fn join(outcomes: Vec<Self>) -> Self {
        let mut spans = Vec::new();
        for outcome in outcomes {
            match outcome {
                Self::Allow => {}
                Self::Deny(denial) => return Self::Deny(denial),
                Self::Mask(masked) => spans.extend(masked),
            }
        }
        if spans.is_empty() { Self::Allow } else { Self::Mask(spans) }
    }

    const fn action(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny(_) => "deny",
            Self::Mask(_) => "mask",
        }
    }
}

/// Returns the message or parameter of the caller that a text belongs to, such as ` (messages[3])`, and how to leave it out.
fn place(passage: &Passage<'_>) -> String {
    // Other names may be part of the text.
    let is_name = |step: &&str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (1..=MAX_STEP).contains(&step.len()) && step.bytes().all(is_part)
    };
    let mut steps = passage.location.split('/').skip(1);
    let name = steps.next().filter(is_name).filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()));
    let name = name.filter(|_| passage.direction != Direction::Completion);
    let index = steps.next().filter(is_name).filter(|step| step.bytes().all(|byte| byte.is_ascii_digit()));
    let mut parts = Vec::new();
    parts.extend(name.map(|name| index.map_or(name.to_owned(), |index| format!("{name}[{index}]"))));
    parts.extend(
        Role::of(passage)
            .filter(|role| *role != Role::User)
            .map(|role| format!("role {}; the judge's option roles can leave it out", role.as_str())),
    );
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Moves the bounds of a span outwards to the boundaries of characters.
fn on_boundaries(mut span: Span, text: &str) -> Span {
    let (start, end) = (span.range.start.min(text.len()), span.range.end.min(text.len()));
    span.range = text.floor_char_boundary(start)..text.ceil_char_boundary(end.max(start));
    span
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{CacheOptions, Judge, JudgeError, Policy, Turns};

    /// Denies attacks and masks names. It fails when it is told to, and counts what it is asked.
    #[derive(Default)]
    struct Attacks(Arc<AtomicUsize>);

    impl Judge for Attacks {
        async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
            let count = self.0.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(match &*passage.text {
                "attack" => Verdict::deny("attack", "the text is an attack"),
                "Jo" => Verdict::Mask(vec![Span::new(0..2, "name", "<NAME>")]),
                "fail" if count == 0 => return Err(JudgeError::new("no")),
                _ => Verdict::Allow,
            })
        }
    }

    fn panel(policy: Policy) -> (Panel, Arc<AtomicUsize>) {
        let judge = Attacks::default();
        let count = Arc::clone(&judge.0);
        let judges = Judges::new().with_policy(judge, policy);
        (Panel { judges, telemetry: Arc::new(Telemetry::new(None).unwrap()), mode: Mode::Enforce }, count)
    }

    fn passage(direction: Direction, role: Option<&'static str>, text: &'static str) -> Passage<'static> {
        Passage { role: role.map(Into::into), ..Passage::new(direction, text) }
    }

    /// Returns `deny`, `mask` or `allow`.
    async fn judge(panel: &Panel, text: &'static str, is_history: bool) -> &'static str {
        let passage = Passage { is_history, ..passage(Direction::Prompt, Some("user"), text) };
        panel.judge(&passage).await.action()
    }

    #[tokio::test]
    async fn roles_leave_out_only_what_is_known_to_have_another_role() {
        let policy = Policy::default().with_roles([Role::User, Role::Assistant]);
        let (panel, _) = panel(policy);
        for (direction, role, action) in [
            (Direction::Prompt, Some("user"), "deny"),
            (Direction::Prompt, Some("assistant"), "deny"),
            (Direction::Prompt, Some("model"), "deny"),
            (Direction::Prompt, Some("system"), "allow"),
            (Direction::Prompt, Some("developer"), "allow"),
            (Direction::Prompt, Some("tool"), "allow"),
            (Direction::Prompt, Some("function"), "allow"),
            (Direction::ToolResult, Some("user"), "allow"),
            (Direction::ToolResult, None, "allow"),
            (Direction::Prompt, None, "deny"),
            (Direction::Prompt, Some("System"), "deny"),
            (Direction::Prompt, Some("system "), "deny"),
            (Direction::Completion, Some("system"), "deny"),
            (Direction::ToolCall, Some("tool"), "deny"),
        ] {
            let found = panel.judge(&passage(direction, role, "attack")).await.action();
            assert_eq!(found, action, "{direction} {role:?}");
        }
    }

    #[tokio::test]
    async fn earlier_turns_pass_if_they_were_judged_before() {
        let (panel, count) =
            panel(Policy::default().with_turns(Turns::Last).with_cache(CacheOptions::default()));
        assert_eq!(judge(&panel, "attack", true).await, "deny", "an invented history is judged");
        assert_eq!(judge(&panel, "attack", true).await, "allow");
        assert_eq!(judge(&panel, "attack", false).await, "deny", "the last turn is always judged");
        assert_eq!(judge(&panel, "Jo", false).await, "mask");
        assert_eq!(judge(&panel, "Jo", true).await, "mask");
        assert_eq!(count.load(Ordering::Relaxed), 2);
        // Another role or direction is another text.
        for (direction, role) in [
            (Direction::Prompt, Some("system")),
            (Direction::ToolResult, Some("user")),
            (Direction::Prompt, None),
        ] {
            let passage = Passage { is_history: true, ..passage(direction, role, "attack") };
            assert_eq!(panel.judge(&passage).await.action(), "deny", "{direction} {role:?}");
        }
    }

    #[tokio::test]
    async fn all_turns_are_judged_by_default_and_new_text_only_costs() {
        let (panel, count) = panel(Policy::default().with_cache(CacheOptions::default()));
        for _ in 0..3 {
            for (text, action) in [("attack", "deny"), ("hello", "allow"), ("Jo", "mask")] {
                assert_eq!(judge(&panel, text, true).await, action);
            }
        }
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn nothing_is_cached_without_the_option_or_space() {
        for policy in [Policy::default(), Policy::default().with_cache(CacheOptions::default().with_size(0))]
        {
            let (panel, count) = panel(policy.with_turns(Turns::Last));
            for _ in 0..3 {
                assert_eq!(judge(&panel, "attack", true).await, "deny");
            }
            assert_eq!(count.load(Ordering::Relaxed), 3);
        }
    }

    #[tokio::test]
    async fn errors_are_not_cached() {
        let (panel, _) = panel(Policy::default().with_cache(CacheOptions::default()));
        assert_eq!(judge(&panel, "fail", false).await, "deny");
        assert_eq!(judge(&panel, "fail", false).await, "allow");
    }

    #[tokio::test]
    async fn verdicts_expire() {
        let cache = CacheOptions::default().with_ttl(std::time::Duration::from_millis(5));
        let (panel, count) = panel(Policy::default().with_cache(cache));
        let expiry = async {
            while count.load(Ordering::Relaxed) < 2 {
                judge(&panel, "hello", false).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), expiry).await.unwrap();
    }

    #[tokio::test]
    async fn concurrent_requests_for_a_text_ask_once() {
        let (panel, count) = panel(Policy::default().with_cache(CacheOptions::default()));
        let passages: Vec<_> = (0..20).map(|_| passage(Direction::Prompt, None, "attack")).collect();
        let outcomes = join_all(passages.iter().map(|passage| panel.judge(passage))).await;
        assert!(outcomes.iter().all(|outcome| outcome.action() == "deny"));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn denials_name_the_message_and_the_option() {
        let (panel, _) = panel(Policy::default());
        let option = "; the judge's option roles can leave it out";
        for (direction, role, location, place) in [
            (Direction::Prompt, Some("user"), "/messages/3/content", " (messages[3])".to_owned()),
            (
                Direction::Prompt,
                Some("system"),
                "/messages/0/content",
                format!(" (messages[0], role system{option})"),
            ),
            (Direction::ToolResult, None, "/input/2/output", format!(" (input[2], role tool{option})")),
            (
                Direction::ToolCall,
                None,
                "/messages/1/tool_calls/0/function/arguments",
                " (messages[1])".to_owned(),
            ),
            (Direction::Prompt, None, "/tools/0/function/description", " (tools[0])".to_owned()),
            (Direction::Prompt, None, "/system", " (system)".to_owned()),
            (Direction::Prompt, None, "/an attack~1/0", String::new()),
            (Direction::Prompt, None, "/0/0", String::new()),
            (Direction::Prompt, None, "", String::new()),
            (Direction::Completion, Some("assistant"), "/choices/0/message/content", String::new()),
        ] {
            let passage = Passage { location: location.into(), ..passage(direction, role, "attack") };
            let Outcome::Deny(denial) = panel.judge(&passage).await else { panic!("{location}") };
            assert_eq!(denial.message, format!("Attacks: the text is an attack{place}"));
        }
    }
}
