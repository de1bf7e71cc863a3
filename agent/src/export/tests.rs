//! The sinks against receivers in this process.

mod collector;
mod delivery;
mod scrape;
