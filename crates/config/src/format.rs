//! The checks of scalars by the names that JSON Schema has for them.

use super::database_url::DatabaseUrl;
use super::network::Network;
use super::rate::{Dollars, PerMillion, PerThousand, PerUnit, Times};
use super::scalar::{Address, DayWindow, ImageSize, Period, Scalar, ScalarError, Share, Size};
use super::url::BaseUrl;
use super::webhook_host::WebhookHost;
use super::window::Window;

/// The checks by `format`.
pub(super) fn check(format: &str, text: &str) -> Result<(), ScalarError> {
    fn check<T: Scalar>(text: &str) -> Result<(), ScalarError> {
        T::parse(text).map(drop)
    }
    match format {
        Period::FORMAT => check::<Period>(text),
        Window::FORMAT => check::<Window>(text),
        Size::FORMAT => check::<Size>(text),
        Share::FORMAT => check::<Share>(text),
        Address::FORMAT => check::<Address>(text),
        ImageSize::FORMAT => check::<ImageSize>(text),
        DayWindow::FORMAT => check::<DayWindow>(text),
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
