//! Judges of an auditor, and how each is treated.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde::Deserialize;

use crate::{
    AuditMode, CacheOptions, Direction, Judge, JudgeError, Passage, Role, Verdict,
    cache::{Cache, Key},
};

/// Turns of a conversation that are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Turns {
    /// All.
    #[default]
    All,
    /// The last one, which begins with the last message of the assistant. A denial of an earlier text that is in the
    /// [cache](JudgePolicy::cache) is ignored; its masks are applied. An earlier text that is not in the cache is judged.
    Last,
}

/// Policy of a judge and of its verdicts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JudgePolicy {
    /// Name for metrics, log lines and refusals. Default: [`Judge::name`].
    pub name: Option<String>,
    /// In `observe`, verdicts are only reported. An auditor in `observe` observes with all of its judges.
    pub mode: AuditMode,
    /// Consequence of an error or a timeout, unless [`Settings::on_failure`](crate::Settings::on_failure) is set. Default:
    /// deny.
    pub on_failure: OnFailure,
    /// Time for one verdict, unless [`Settings::timeout`](crate::Settings::timeout) is set. Default: 10 s.
    pub timeout: Duration,
    /// Texts that the judge evaluates. Default: all.
    pub directions: Option<Vec<Direction>>,
    /// Roles whose prompts and results of tools the judge evaluates. Default: all, as the caller chooses the roles.
    /// Texts without a role, or with an unknown one, are always judged; answers of the model are subject to
    /// `directions` only.
    pub roles: Option<Vec<Role>>,
    /// Turns whose denials have consequences. Default: all.
    pub turns: Turns,
    /// Cache of verdicts on whole texts: requests repeat the conversation. Windows of streams and errors are not cached.
    ///
    /// Default: none, so that the judge sees every text. Only for judges whose verdict depends on nothing but text, direction
    /// and role: not for one that counts requests.
    pub cache: Option<CacheOptions>,
}

/// Consequence of an error or a timeout of a judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The text must not pass.
    #[default]
    Deny,
    /// The text may pass.
    Allow,
}

impl Default for JudgePolicy {
    fn default() -> Self {
        Self {
            name: None,
            mode: AuditMode::Enforce,
            on_failure: OnFailure::Deny,
            timeout: Duration::from_secs(10),
            directions: None,
            roles: None,
            turns: Turns::All,
            cache: None,
        }
    }
}

impl JudgePolicy {
    /// Sets the name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the mode.
    #[must_use]
    pub fn with_mode(mut self, mode: AuditMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the consequence of a failure.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets the time for one verdict.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Limits the judge to some texts.
    #[must_use]
    pub fn with_directions(mut self, directions: impl IntoIterator<Item = Direction>) -> Self {
        self.directions = Some(directions.into_iter().collect());
        self
    }

    /// Limits the judge to prompts and results of tools of some roles.
    #[must_use]
    pub fn with_roles(mut self, roles: impl IntoIterator<Item = Role>) -> Self {
        self.roles = Some(roles.into_iter().collect());
        self
    }

    /// Sets the turns that are judged.
    #[must_use]
    pub fn with_turns(mut self, turns: Turns) -> Self {
        self.turns = turns;
        self
    }

    /// Caches verdicts.
    #[must_use]
    pub fn with_cache(mut self, cache: CacheOptions) -> Self {
        self.cache = Some(cache);
        self
    }
}

/// Judges of an auditor, with their policies. They judge in parallel.
#[derive(Clone, Default)]
pub struct Judges(Vec<Arc<Member>>);

pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) policy: JudgePolicy,
    pub(crate) judge: Box<dyn DynJudge>,
    pub(crate) cache: Option<Cache>,
}

impl Judges {
    /// Creates an empty set: everything passes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a judge with the default policy.
    #[must_use]
    pub fn with(self, judge: impl Judge) -> Self {
        self.with_policy(judge, JudgePolicy::default())
    }

    /// Adds a judge.
    #[must_use]
    pub fn with_policy(mut self, judge: impl Judge, policy: JudgePolicy) -> Self {
        let name = policy.name.clone().unwrap_or_else(|| judge.name().into_owned());
        let cache = policy.cache.and_then(Cache::new);
        self.0.push(Arc::new(Member { name, policy, judge: Box::new(judge), cache }));
        self
    }

    /// Returns `true` if there is no judge.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns names and policies.
    pub fn policies(&self) -> impl Iterator<Item = (&str, &JudgePolicy)> {
        self.0.iter().map(|member| (member.name.as_str(), &member.policy))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.0.iter()
    }
}

impl fmt::Debug for Judges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge")
            .field("name", &self.name)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Member {
    /// Returns the verdict within the timeout. The one on a whole text is cached by its `key`.
    pub(crate) async fn judge(
        &self,
        passage: &Passage<'_>,
        key: Option<Key>,
        timeout: Duration,
    ) -> Result<Verdict, JudgeError> {
        let judge = self.judge.judge(passage);
        let verdict = async {
            let (Some(cache), Some(key)) = (&self.cache, key) else { return judge.await };
            let is_earlier = passage.is_history && self.policy.turns == Turns::Last;
            match cache.get_or(key, judge).await? {
                (Verdict::Deny { .. }, true) if is_earlier => Ok(Verdict::Allow),
                (verdict, _) => Ok(verdict),
            }
        };
        match tokio::time::timeout(timeout, verdict).await {
            Ok(outcome) => outcome,
            Err(_) => Err(JudgeError::new(format!("no verdict within {timeout:?}"))),
        }
    }

    /// Returns `true` if the judge evaluates texts of this direction and role.
    pub(crate) fn concerns(&self, passage: &Passage<'_>) -> bool {
        let JudgePolicy { directions, roles, .. } = &self.policy;
        let is_prompt = passage.direction == Direction::ToolCall && passage.is_message;
        directions.as_ref().is_none_or(|directions| {
            directions.contains(&passage.direction) || is_prompt && directions.contains(&Direction::Prompt)
        }) && Role::of(passage).zip(roles.as_ref()).is_none_or(|(role, roles)| roles.contains(&role))
    }
}

/// [`Judge`] as a trait object.
pub(crate) trait DynJudge: Send + Sync {
    fn judge<'a>(&'a self, passage: &'a Passage<'_>) -> BoxFuture<'a, Result<Verdict, JudgeError>>;
    fn overlap(&self) -> usize;
    fn context(&self, before: &str) -> usize;
    fn undecided(&self, text: &str) -> usize;
    fn stride(&self) -> usize;
}

impl<J: Judge> DynJudge for J {
    fn judge<'a>(&'a self, passage: &'a Passage<'_>) -> BoxFuture<'a, Result<Verdict, JudgeError>> {
        Box::pin(Judge::judge(self, passage))
    }

    fn overlap(&self) -> usize {
        Judge::overlap(self)
    }

    fn context(&self, before: &str) -> usize {
        Judge::context(self, before).min(Judge::overlap(self))
    }

    fn undecided(&self, text: &str) -> usize {
        Judge::undecided(self, text).min(Judge::overlap(self))
    }

    fn stride(&self) -> usize {
        Judge::stride(self)
    }
}
