//! Prints the allocations of planning and patching each pod, as JSON. `cargo xtask bench chain` starts it.

use std::error::Error;

use bench_chain::Case;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut all = Vec::new();
    for case in Case::all()? {
        // The first run fills caches.
        case.work()?;
        let profiler = dhat::Profiler::builder().testing().build();
        case.work()?;
        all.push(dhat::HeapStats::get().total_blocks);
        drop(profiler);
    }
    println!("{}", serde_json::to_string(&all)?);
    Ok(())
}
