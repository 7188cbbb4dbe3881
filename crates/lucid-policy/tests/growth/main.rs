//! Work grows at most linearly with the size of a pod, whichever field its author enlarges. Allocated bytes measure
//! the work. Other tests would distort the count, so this is the only test of its process.

mod pods;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SIZE: usize = 50_000;

fn allocated(pod: &str) -> usize {
    let old = pod.replacen("web", "old", 1).replacen(r#""spec":{"#, r#""spec":{"a":0,"#, 1);
    let region = Region::new(ALLOCATOR);
    pods::mutate(pod);
    pods::validate(pod, None);
    pods::validate(pod, Some(&old));
    region.change().bytes_allocated
}

#[test]
fn work_is_linear_in_the_size_of_a_pod() {
    // Initializes the lazily created values.
    allocated(&pods::all(SIZE)[0].1);
    for ((name, small), (_, large)) in pods::all(SIZE).into_iter().zip(pods::all(4 * SIZE)) {
        assert!(large.len() <= 9 * SIZE, "{name}: {} bytes", large.len());
        let (one, four) = (allocated(&small), allocated(&large));
        println!("{name}: {} bytes allocate {one}, {} bytes {four}", small.len(), large.len());
        assert!(four <= one * 6, "{name}: {one} bytes, then {four}");
        // The pod is parsed four times into lists that double as they grow.
        assert!(four <= 300 * large.len() + (8 << 20), "{name}: {} bytes allocate {four}", large.len());
    }
}
