//! Proves that the core needs no standard library.

#![no_std]

use clb_difftracker as _;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
