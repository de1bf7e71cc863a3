//! NVLink's traffic, of all links of a GPU together. The wrapper asks for the first link only.

use enginetap_core::gpu::reading::{Bytes, Traffic};
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
};
use nvml_wrapper_sys::bindings::{
    nvmlFieldValue_t, nvmlReturn_enum_NVML_SUCCESS, nvmlValue_t,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
};

/// All links together (`nvml.h`, at `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX`).
const ALL: u32 = u32::MAX;

/// Bytes since the driver was loaded; `None` where the GPU has no NVLink.
pub(super) fn traffic(device: &Device<'_>) -> Option<Traffic> {
    let mut fields =
        [NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX].map(field);
    let ask = device.nvml().lib().nvmlDeviceGetFieldValues.as_ref().ok()?;
    // SAFETY: the handle is the device's own, and lives as long as it; the array holds as many fields as are said.
    let answer = unsafe { ask(device.handle(), 2, fields.as_mut_ptr()) };
    if answer != nvmlReturn_enum_NVML_SUCCESS {
        return None;
    }
    let [received, sent] = fields.map(kibibytes);
    Some(Traffic { received: received?, sent: sent? })
}

fn field(id: u32) -> nvmlFieldValue_t {
    nvmlFieldValue_t {
        fieldId: id,
        scopeId: ALL,
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: 0,
        value: nvmlValue_t { ullVal: 0 },
    }
}

fn kibibytes(field: nvmlFieldValue_t) -> Option<Bytes> {
    let told = field.nvmlReturn == nvmlReturn_enum_NVML_SUCCESS
        && field.valueType == nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    // SAFETY: every bit pattern is a number; that it is this kind the type above says.
    told.then(|| Bytes(unsafe { field.value.ullVal }.saturating_mul(1024)))
}
