//! Break-glass tickets.

use jiff::Timestamp;
use lucid_chain::{PodChoices, keys};
use lucid_text::Excerpt;
use regex::Regex;
use snafu::{ResultExt, Snafu};

use crate::case::Case;
use crate::finding::{Problem, truncated};

/// Recommended pattern of tickets: a label value with at least one digit, such as `INC-4711` or `CHG0042001`. It does
/// not match `true`.
pub const DEFAULT_TICKET_PATTERN: &str = "[A-Za-z0-9._-]*[0-9][A-Za-z0-9._-]*";

/// The tickets accepted in the label `lucid.computing/break-glass`; none by default.
#[derive(Clone, Debug, Default)]
pub struct Tickets(Option<Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    text: String,
    regex: Regex,
}

/// The ticket pattern is not a valid regular expression.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read the pattern of tickets: {source}"))]
pub struct TicketPatternError {
    source: regex::Error,
}

/// The requester's permission to break the glass.
///
/// The permission belongs to the user of the admission request. Pods of a workload are requested by the workload's
/// controller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Permission {
    /// No permission is checked. A ticket is accepted if the namespace's [`PodChoices`] are [`All`](PodChoices::All).
    NotRequired,
    /// The user has the permission.
    Granted,
    /// The user lacks the permission, or the check failed.
    Denied {
        /// Reason, including the user.
        reason: String,
    },
}

/// State of a pod's break-glass ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakGlass {
    /// The pod has no ticket.
    No,
    /// The ticket is accepted: the pod is admitted regardless of its findings.
    Opened,
    /// The ticket is not accepted.
    Refused,
}

impl Tickets {
    /// Accepts tickets that match `pattern` in full. The syntax is that of the `regex` crate, which matches in linear
    /// time.
    ///
    /// # Errors
    ///
    /// Returns [`TicketPatternError`] if `pattern` is not a valid regular expression.
    pub fn new(pattern: &str) -> Result<Self, TicketPatternError> {
        // Compiled on its own first: an unbalanced parenthesis could otherwise close the group.
        Regex::new(pattern).context(TicketPatternSnafu)?;
        let regex = Regex::new(&format!("^(?:{pattern})$")).context(TicketPatternSnafu)?;
        Ok(Self(Some(Pattern { text: pattern.to_owned(), regex })))
    }

    /// Returns the pattern, or `None` if no tickets are accepted.
    #[must_use]
    pub fn pattern(&self) -> Option<&str> {
        self.0.as_ref().map(|pattern| pattern.text.as_str())
    }

    /// Returns the ticket of the case if it is well-formed and has not expired. Only then does the user's permission
    /// need a check.
    #[must_use]
    pub fn valid_ticket<'a>(&self, case: &Case<'a>) -> Option<&'a str> {
        case.ticket().filter(|_| self.check(case).is_none())
    }

    fn check(&self, case: &Case<'_>) -> Option<Problem> {
        let ticket = case.ticket()?;
        let expected = match &self.0 {
            None => "expected no ticket, because this cluster does not accept any".to_owned(),
            Some(pattern) if pattern.regex.is_match(ticket) => return check_expiry(case),
            Some(pattern) => format!("expected a ticket that matches {}", pattern.text),
        };
        let found = Excerpt(ticket);
        let message = format!("label {}: {expected}; found {found}", keys::BREAK_GLASS);
        Some(Problem::break_glass("TicketInvalid", message))
    }

    pub(crate) fn evaluate(&self, case: &Case<'_>, permission: &Permission) -> (BreakGlass, Option<Problem>) {
        if case.ticket().is_none() {
            return (BreakGlass::No, None);
        }
        let problem = self.check(case).or_else(|| match permission {
            Permission::Denied { reason } => {
                let message = format!("the break-glass ticket does not count: {}", truncated(reason));
                Some(Problem::break_glass("NotPermitted", message))
            }
            Permission::NotRequired if case.settings.pod_choices < PodChoices::Unset => Some(Problem::break_glass(
                "TicketNotAllowed",
                format!(
                    "label {} does not count: {} of the namespace is \"{}\", and permissions are not checked",
                    keys::BREAK_GLASS,
                    keys::POD_CHOICES,
                    case.settings.pod_choices
                ),
            )),
            _ => None,
        });
        match problem {
            None => (BreakGlass::Opened, None),
            Some(problem) => (BreakGlass::Refused, Some(problem)),
        }
    }
}

fn check_expiry(case: &Case<'_>) -> Option<Problem> {
    let until = case.pod().annotation(keys::BREAK_GLASS_UNTIL)?;
    match until.trim().parse::<Timestamp>() {
        Ok(end) if case.subject.request.now < end => None,
        Ok(end) => {
            let message = format!("the break-glass ticket has expired: it held until {end}");
            Some(Problem::break_glass("TicketExpired", message))
        }
        Err(_) => Some(Problem::break_glass(
            "ExpiryInvalid",
            format!(
                "annotation {}: expected a time such as 2026-01-31T18:00:00Z, found {}",
                keys::BREAK_GLASS_UNTIL,
                Excerpt(until)
            ),
        )),
    }
}
