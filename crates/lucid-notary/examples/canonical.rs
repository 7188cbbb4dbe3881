//! Prints the canonical form of image references: `cargo run -p lucid-notary --example canonical nginx
//! localhost:5000/a/b:1`.

use std::env;
use std::process::ExitCode;

use lucid_notary::ImageReference;

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for argument in env::args().skip(1) {
        match argument.parse::<ImageReference>() {
            Ok(image) if image.digest().is_some() => println!("{argument}: {}", image.canonical()),
            Ok(image) => println!("{argument}: {}, which can mean another image tomorrow", image.canonical()),
            Err(error) => {
                println!("{argument}: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
