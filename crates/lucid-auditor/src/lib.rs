//! Auditors in front of AI models: write a [`Judge`], this crate does the rest.
//!
//! An auditor is an HTTP proxy between the callers of a model and the model. It finds the texts of requests and answers
//! in the protocols of model servers, lets judges evaluate them, and forwards, masks or refuses accordingly. Lucid
//! chains auditors in the pods of models, but the crate needs neither Lucid nor Kubernetes.
//!
//! ```no_run
//! use lucid_auditor::{Auditor, Judge, JudgeError, Passage, Verdict};
//!
//! struct NoCompetitors;
//!
//! impl Judge for NoCompetitors {
//!     async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
//!         Ok(match passage.text.contains("Initech") {
//!             true => Verdict::deny("competitor", "the text names a competitor"),
//!             false => Verdict::Allow,
//!         })
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     Ok(lucid_auditor::serve(Auditor::from_env()?.judge(NoCompetitors)).await?)
//! }
//! ```
//!
//! ```toml
//! [dependencies]
//! lucid-auditor = "0.1"
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! [`Settings`] are environment variables, which Lucid sets. [`JudgePolicy`] makes a judge observe only, limits its time or its texts, or caches its verdicts.
//! Judges that are ready made are in the crate [lucid-guardrails](https://docs.rs/lucid-guardrails).
//!
//! # Requests
//!
//! `GET /health` is answered, `POST /audit` judges the text in the body as a whole, and everything else is forwarded. In
//! [`AuditMode::Enforce`], a request is buffered and judged before the model sees any part of it. In [`AuditMode::Observe`], copies of
//! requests and answers are judged, and nothing is delayed.
//!
//! # Texts
//!
//! | protocol | recognized by |
//! |---|---|
//! | OpenAI chat completions, completions, responses, embeddings | path, `messages` |
//! | Anthropic messages | `/v1/messages` |
//! | Ollama generate, chat, embed | `/api/…` |
//! | KServe V1 and V2 | `:predict`, `/infer` |
//! | Gemini | `:generateContent`, `contents` |
//! | Text Generation Inference, SGLang | `/generate`, `inputs` |
//! | Model Context Protocol | `jsonrpc` |
//! | streams of OpenAI Assistants and of the AI SDK's UI messages | events |
//!
//! Answers are recognized by their content. The protocol determines [`Passage::direction`], [`Passage::role`], which strings form
//! one text, and how a refusal is reported. It does not limit the search: other strings of JSON are joined by the name of their
//! member and judged too, as are names of members, text that is not JSON, and percent-encoded paths and queries. Consecutive
//! messages of one role are also judged as one text. Rows of JSON lines, such as those of a batch file, are judged one by one.
//!
//! Identifiers and opaque members pass unjudged and unchanged, such as signatures of thinking blocks, encrypted contents, cursors
//! and vectors. Opaque means one word of base64 or the like: other text in their place is judged.
//!
//! # Streams
//!
//! Server-sent events, lines of JSON, elements of an array (Gemini) and plain text are judged as they arrive. Strings that
//! continue, such as the words of an answer, are joined for each choice and each tool call. An event is released once the judges
//! have decided on its text: see [`Judge::undecided`]. Only events of the same text wait for it. A text ends with the next kind of
//! text in its answer, or where its protocol says so; names and comments are whole.
//!
//! A stream that is refused ends as its protocol provides (`finish_reason: "content_filter"`, `stop_reason: "refusal"`), with
//! auditor and rule; without such an end, the connection is cut. The caller keeps the words before the denial. A limit that is
//! reached, such as an event longer than [`Settings::max_bytes`], is an error of the protocol instead.
//!
//! # Telemetry
//!
//! `GET /metrics` on [`Settings::metrics_port`] has the metrics `lucid_auditor_…`. Each denial and each replacement is one log
//! line with judge, rule and an HMAC of the text, under the key of the variable `LUCID_HASH_KEY`. The spans `request` and
//! `verdict` are those of `tracing`; verdicts on text in the middle of a stream have none. With feature `opentelemetry` they
//! continue the trace of the header `traceparent`, which is forwarded.
//!
//! # Failure
//!
//! A judge that returns an error, panics or exceeds its time denies or allows, as [`JudgePolicy::on_failure`] says. Content that cannot be judged is
//! refused or passes by [`Settings::unjudged`]. A model that cannot be reached is an error of the protocol.
//!
//! # Features
//!
//! | feature | default | enables |
//! |---|---|---|
//! | `opentelemetry` | no | spans that continue the caller's trace |
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.

mod answer;
mod auditor;
mod body;
mod cache;
mod coding;
mod cors;
mod forward;
mod framing;
mod json;
mod judge;
mod layer;
mod policy;
mod protocol;
mod refusal;
mod request;
mod serve;
mod settings;
mod stream;
mod telemetry;
mod text;
mod track;
mod values;
mod verdict;
mod whole;

pub use auditor::Auditor;
pub use cache::CacheOptions;
pub use judge::{Direction, Judge, JudgeError, Passage, Role, Span, Verdict};
pub use layer::{JudgeService, Layered};
pub use policy::{JudgePolicy, Judges, OnFailure, Turns};
pub use serve::{ServeError, Stage, serve, serve_on};
pub use settings::{Route, SettingError, Settings, Unjudged};
pub use telemetry::Metrics;

/// Action on a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditMode {
    /// A refused text does not pass.
    #[default]
    Enforce,
    /// A refused text is reported and passes. Nothing is delayed.
    Observe,
}
