//! The checks of scalars by the names that JSON Schema has for them.

use super::database_url::DatabaseUrl;
use super::network::Network;
use super::rate::{Dollars, PerMillion, PerThousand, PerUnit, Times};
use super::scalar::{
    ByteSize, DayWindowText, DurationText, Fraction, ImageSizeText, ListenAddress, Scalar,
    ScalarError,
};
use super::url::BaseUrl;
use super::webhook_host::WebhookHost;
use super::window::OptionalDuration;

/// The checks by `format`.
pub(super) fn check(format: &str, text: &str) -> Result<(), ScalarError> {
    fn check<T: Scalar>(text: &str) -> Result<(), ScalarError> {
        T::parse(text).map(drop)
    }
    match format {
        DurationText::FORMAT => check::<DurationText>(text),
        OptionalDuration::FORMAT => check::<OptionalDuration>(text),
        ByteSize::FORMAT => check::<ByteSize>(text),
        Fraction::FORMAT => check::<Fraction>(text),
        ListenAddress::FORMAT => check::<ListenAddress>(text),
        ImageSizeText::FORMAT => check::<ImageSizeText>(text),
        DayWindowText::FORMAT => check::<DayWindowText>(text),
        Network::FORMAT => check::<Network>(text),
        WebhookHost::FORMAT => check::<WebhookHost>(text),
        BaseUrl::FORMAT => check::<BaseUrl>(text),
        DatabaseUrl::FORMAT => check::<DatabaseUrl>(text),
        Dollars::FORMAT => check::<Dollars>(text),
        PerMillion::FORMAT => check::<PerMillion>(text),
        PerThousand::FORMAT => check::<PerThousand>(text),
        PerUnit::FORMAT => check::<PerUnit>(text),
        Times::FORMAT => check::<Times>(text),
        _ => Ok(()),
    }
}
