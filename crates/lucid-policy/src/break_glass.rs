//! Tickets that open what the policy has shut.

use jiff::Timestamp;
use lucid_chain::{PodChoices, keys};
use regex::Regex;
use snafu::{ResultExt, Snafu};

use crate::case::Case;
use crate::finding::Problem;
use crate::text;

/// The pattern of tickets, unless another one is configured: a label's value with at least one digit, such as `INC-4711` or
/// `CHG0042001`. So `true` is none.
pub const DEFAULT_TICKET_PATTERN: &str = "[A-Za-z0-9._-]*[0-9][A-Za-z0-9._-]*";

/// Which tickets are accepted in the label `lucid.computing/break-glass`. The default has [`DEFAULT_TICKET_PATTERN`].
#[derive(Clone, Debug)]
pub struct Tickets(Option<Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    text: String,
    regex: Regex,
}

/// A pattern of tickets is no regular expression.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read the pattern of tickets: {source}"))]
pub struct TicketPatternError {
    source: regex::Error,
}

/// What is known of the right of who asks to break the glass. It is asked for the user of the request, whoever that is:
/// for the pods of a workload that is its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Permission {
    /// No permission is required: the pod's author may where the namespace's [`PodChoices`] are
    /// [`All`](PodChoices::All).
    NotRequired,
    /// They may.
    Granted,
    /// They may not, or it cannot be told.
    Denied {
        /// Why.
        reason: String,
    },
}

/// Whether a pod breaks the glass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakGlass {
    /// It has no ticket.
    No,
    /// Its ticket counts: it is admitted whatever is wrong.
    Opened,
    /// It has a ticket, which does not count.
    Refused,
}

impl Default for Tickets {
    fn default() -> Self {
        Self::new(DEFAULT_TICKET_PATTERN).unwrap_or(Self(None))
    }
}

impl Tickets {
    /// Those that match `pattern` as a whole, in the syntax of the crate regex, whose time is linear.
    ///
    /// # Errors
    ///
    /// When it is no regular expression.
    pub fn new(pattern: &str) -> Result<Self, TicketPatternError> {
        // By itself first: a bracket too many would close the group.
        Regex::new(pattern).context(TicketPatternSnafu)?;
        let regex = Regex::new(&format!("^(?:{pattern})$")).context(TicketPatternSnafu)?;
        Ok(Self(Some(Pattern { text: pattern.to_owned(), regex })))
    }

    /// None at all.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// The pattern, unless there is none.
    #[must_use]
    pub fn pattern(&self) -> Option<&str> {
        self.0.as_ref().map(|pattern| pattern.text.as_str())
    }

    /// The ticket by which the case would break the glass, if it has one that is accepted and has not expired: then it is
    /// worth asking whether the user may.
    #[must_use]
    pub fn of<'a>(&self, case: &Case<'a>) -> Option<&'a str> {
        case.ticket().filter(|_| self.check(case).is_none())
    }

    /// What is wrong with the ticket of the case, which has one.
    fn check(&self, case: &Case<'_>) -> Option<Problem> {
        let found = case.ticket()?;
        let accepted = self.0.as_ref();
        if !accepted.is_some_and(|pattern| pattern.regex.is_match(found)) {
            let accepted = accepted.map(|pattern| pattern.text.clone());
            return Some(Problem::TicketInvalid { found: text::kept(found), accepted });
        }
        let until = case.pod().annotation(keys::BREAK_GLASS_UNTIL)?;
        match until.trim().parse::<Timestamp>() {
            Ok(end) if case.subject.request.now < end => None,
            Ok(end) => Some(Problem::TicketExpired { until: end.to_string() }),
            Err(_) => Some(Problem::ExpiryInvalid { found: text::kept(until) }),
        }
    }

    pub(crate) fn judge(&self, case: &Case<'_>, permission: &Permission) -> (BreakGlass, Option<Problem>) {
        if case.ticket().is_none() {
            return (BreakGlass::No, None);
        }
        let problem = self.check(case).or_else(|| match permission {
            Permission::Denied { reason } => Some(Problem::NotPermitted { reason: text::kept(reason) }),
            Permission::NotRequired if case.pod_choices < PodChoices::Unset => {
                Some(Problem::TicketNotAllowed { choices: case.pod_choices })
            }
            _ => None,
        });
        match problem {
            None => (BreakGlass::Opened, None),
            Some(problem) => (BreakGlass::Refused, Some(problem)),
        }
    }
}
