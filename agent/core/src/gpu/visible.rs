//! `CUDA_VISIBLE_DEVICES`: which GPUs a process may use, as CUDA reads it (CUDA C++ Programming Guide, "Environment
//! variables").

use super::reading::{Device, GpuId};

/// The variable.
pub const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// The one that says how GPUs are numbered.
pub const DEVICE_ORDER: &str = "CUDA_DEVICE_ORDER";

/// The GPUs that a process may use; `None` where its environment does not limit them, or its numbers cannot be told: CUDA
/// counts the fastest GPU first unless `order` says by PCI address, as NVML does.
#[must_use]
pub fn visible(listed: Option<&str>, order: Option<&str>, devices: &[Device]) -> Option<Vec<GpuId>> {
    let listed = listed?;
    let whole: Vec<&Device> = devices.iter().filter(|device| device.parent.is_none()).collect();
    let alike = whole.windows(2).all(|pair| matches!(pair, [one, other] if one.model == other.model));
    let numbered = order == Some("PCI_BUS_ID") || alike;
    let mut found = Vec::new();
    for word in listed.split(',').map(str::trim) {
        let device = match word.parse::<u32>() {
            Ok(_) if !numbered => return None,
            Ok(index) => whole.iter().copied().find(|device| device.index == index),
            Err(_) => named(word, devices),
        };
        // What follows a name that is none is not visible either.
        let Some(device) = device else { break };
        if !found.contains(&device.id) {
            found.push(device.id.clone());
        }
    }
    Some(found)
}

/// A device by its UUID, or the beginning of one that no other has.
fn named<'a>(word: &str, devices: &'a [Device]) -> Option<&'a Device> {
    if !word.starts_with("GPU-") && !word.starts_with("MIG-") {
        return None;
    }
    let mut found = devices.iter().filter(|device| device.id.0.starts_with(word));
    match (found.next(), found.next()) {
        (Some(only), None) => Some(only),
        (Some(_), Some(_)) | (None, _) => None,
    }
}
