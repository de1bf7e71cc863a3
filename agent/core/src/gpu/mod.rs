//! What the GPUs of the machine tell of themselves: readings in, points out, and whose GPUs they are.
//!
//! A [`reading::Reading`] is what NVML said at one moment, as plain data; [`board::Board`] keeps the last one and
//! counts what readings tell once. Which GPU an engine may use says [`visible`].

pub mod board;
pub mod owner;
mod points;
pub mod reading;
pub mod visible;

#[cfg(test)]
mod tests;
