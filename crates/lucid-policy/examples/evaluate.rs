//! Evaluates the creation of a pod, given as JSON, without verdicts from a Verifier: `cargo run -p lucid-policy
//! --example evaluate < pod.json`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;

use lucid_chain::{Catalogue, Configuration, Inputs};
use lucid_policy::{Case, Mode, Permission, Policy, Request, Workload};

fn main() -> Result<(), Box<dyn Error>> {
    let pod = io::read_to_string(io::stdin())?;
    let request =
        Request::new(Workload::Pod, "default", jiff::Timestamp::now()).with_object(Some(pod.as_bytes()));
    let subject = request.subject()?.ok_or("the pod has no spec")?;

    // The chain is planned again: the pod's own markers prove nothing.
    let catalogues = [Catalogue::builtin()];
    let configuration = Configuration::new(Catalogue::builtin(), None)?;
    let case = Case::new(&subject, &Inputs::new(&configuration), &catalogues);

    let mut policy = Policy::default();
    policy.mode = Mode::Enforce;
    let evaluation = policy.evaluate(&case, &case.auditors(), &BTreeMap::new(), &Permission::NotRequired);
    for finding in &evaluation.findings {
        println!("{:?} {}: {finding}", finding.severity, finding.problem.reason);
    }
    println!("{}", if evaluation.denies() { "refused" } else { "allowed" });
    Ok(())
}
