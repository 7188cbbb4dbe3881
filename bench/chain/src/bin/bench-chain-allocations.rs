//! Prints what planning and patching allocates, as JSON. `cargo xtask bench chain` starts it.

use std::error::Error;

use bench_chain::{cases, work};
use serde::Serialize;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

#[derive(Serialize)]
struct Figures {
    group: &'static str,
    name: String,
    size: usize,
    /// Number of allocations.
    allocations: u64,
    /// Total bytes of all allocations.
    bytes: u64,
    /// Peak of allocated bytes.
    peak: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut all = Vec::new();
    for case in cases::all()? {
        // The first run fills caches.
        work(&case, |_| ())?;
        let profiler = dhat::Profiler::builder().testing().build();
        work(&case, |_| ())?;
        let stats = dhat::HeapStats::get();
        drop(profiler);
        all.push(Figures {
            group: case.group,
            name: case.name,
            size: case.size,
            allocations: stats.total_blocks,
            bytes: stats.total_bytes,
            peak: stats.max_bytes,
        });
    }
    println!("{}", serde_json::to_string(&all)?);
    Ok(())
}
