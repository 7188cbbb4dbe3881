//! `cargo xtask soak drift`.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use lucid_certs::target::{ObjectTarget, TrustTarget};
use lucid_certs::{CertificateAuthority, ServingNames, Timing, TrustBundle};
use lucid_e2e::Error;
use tokio::time::sleep;

use super::random;
use super::scene::Scene;
use super::subject::Kind;
use crate::report::{Percentiles, Report, time};

#[derive(Args)]
pub(crate) struct Drift {
    /// Total number of damaged bundles.
    #[arg(long, default_value_t = 200)]
    count: usize,
    /// Number of replicas that reconcile the bundles.
    #[arg(long, default_value_t = 3)]
    replicas: usize,
}

/// Maximum number of times that one object is damaged. After a dozen times in a row lucid-certs assumes a conflict with another
/// owner, and heals the object once a minute.
const EACH_AT_MOST: usize = 10;

/// Time after which an unhealed bundle counts as missed.
const AT_LATEST: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
enum Way {
    Wiped,
    /// `Cg==` in base64.
    Placeholder,
    ForeignBytes,
    AnotherAuthority,
    Added,
}

impl Way {
    const ALL: [Self; 5] =
        [Self::Wiped, Self::Placeholder, Self::ForeignBytes, Self::AnotherAuthority, Self::Added];

    fn content(self, bundle: &TrustBundle, other: &TrustBundle) -> Option<Vec<u8>> {
        match self {
            Self::Wiped => None,
            Self::Placeholder => Some(b"\n".to_vec()),
            Self::ForeignBytes => Some(b"not a certificate".to_vec()),
            Self::AnotherAuthority => Some(other.to_pem().into_bytes()),
            Self::Added => Some(bundle.merge(other).to_pem().into_bytes()),
        }
    }
}

pub(super) async fn run(drift: &Drift, report: &mut Report) -> Result<(), Error> {
    let (mut slowest, mut missed) = (0.0_f64, 0);
    for (kind, outcome) in measure(drift).await? {
        let cells = [
            ("kind", kind),
            ("damaged", (outcome.healed.len() + outcome.missed).to_string()),
            ("rejected by the API server", outcome.rejected.to_string()),
            ("missed", outcome.missed.to_string()),
        ];
        missed += outcome.missed;
        let healed = Percentiles::of(outcome.healed);
        slowest = slowest.max(healed.max);
        report.row(cells.into_iter().chain(healed.cells()));
    }
    report.require("no damage missed", missed, missed == 0);
    report.goal("healed within 1 s", time(slowest), slowest <= 1e6);
    Ok(())
}

#[derive(Default)]
struct Outcome {
    healed: Vec<Duration>,
    rejected: usize,
    missed: usize,
}

async fn measure(drift: &Drift) -> Result<Vec<(String, Outcome)>, Error> {
    let of_kind = drift.count.div_ceil(Kind::ALL.len());
    let objects = of_kind.div_ceil(EACH_AT_MOST).max(1);
    eprintln!(
        "soak: {} objects of each of {} kinds, so that none is damaged more than {EACH_AT_MOST} times, after which \
         lucid-certs would heal it once a minute only",
        objects,
        Kind::ALL.len()
    );
    let of_object = |object| Kind::ALL.map(|kind| (kind, format!("soak{object}")));
    let subjects: Vec<_> = (0..objects).flat_map(of_object).collect();
    let scene = Scene::start(&subjects, drift.replicas, Timing::default()).await?;
    let subjects = Arc::clone(&scene.subjects);
    let targets: Vec<_> = subjects.iter().map(|subject| subject.target(&scene.client)).collect();

    let bundle = targets[0].read().await?.bundle().ok_or("there is no bundle")?;
    let names = ServingNames::for_services("lucid-system", &["soak"])?;
    let other = CertificateAuthority::generate(&names, SystemTime::now())?.trust_bundle();
    // lucid-certs keeps certificates that it finds in the first seconds, because another replica might serve under them. This
    // phase is over when an added authority is removed.
    subjects[0].damage(Way::Added.content(&bundle, &other).as_deref()).await?;
    healed(&targets[0], &bundle).await?;

    let mut outcomes = Kind::ALL.map(|_| Outcome::default());
    for number in 0..drift.count {
        let place = number % subjects.len();
        let (subject, target) = (&subjects[place], &targets[place]);
        let outcome = &mut outcomes[place % Kind::ALL.len()];
        // Damages each object in each way.
        let way = Way::ALL[(number / subjects.len() + place / Kind::ALL.len()) % Way::ALL.len()];
        match subject.damage(way.content(&bundle, &other).as_deref()).await {
            Ok(()) => {}
            Err(kube::Error::Api(status)) if status.code == 422 => {
                outcome.rejected += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        let begin = Instant::now();
        match tokio::time::timeout(AT_LATEST, healed(target, &bundle)).await {
            Ok(healed) => {
                healed?;
                outcome.healed.push(begin.elapsed());
            }
            Err(_) => outcome.missed += 1,
        }
        // Random, to stay out of step with work that follows a healing.
        sleep(Duration::from_millis(200).mul_f64(random())).await;
        if (number + 1) % 20 == 0 {
            eprintln!("soak: {} of {} damaged", number + 1, drift.count);
        }
    }
    scene.end().await?;
    let kinds = subjects.iter().map(|subject| subject.what().to_owned());
    Ok(kinds.zip(outcomes).collect())
}

async fn healed(target: &ObjectTarget, bundle: &TrustBundle) -> Result<(), Error> {
    while !target.read().await?.holds(bundle) {
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
