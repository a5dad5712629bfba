//! Features of a model, derived from its public name.

/// Features of the models of one series (spec section 2.5, the model table and the block table).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeriesFeatures {
    /// True if its models generate sound.
    pub(super) audio: bool,
    /// The series makes drafts, and videos from them.
    pub(super) draft: bool,
    /// The series continues existing videos.
    pub(super) continuation: bool,
    /// It takes audio among its inputs.
    pub(super) audio_input: bool,
    /// The length of a video can be told in frames.
    pub(super) frames: bool,
    /// The length of a video can be left to it.
    pub(super) chooses: bool,
}

impl SeriesFeatures {
    /// The series of a model with a name of this form, neutral (`df-sf-2-0-260128`) or Ark's own
    /// (`dreamina-seedance-2-0-260128`). Of others nothing is known, and nothing is refused.
    pub(super) fn from_model(model: &str) -> Option<Self> {
        const NONE: SeriesFeatures = SeriesFeatures {
            audio: false,
            draft: false,
            continuation: false,
            audio_input: false,
            frames: false,
            chooses: false,
        };
        let brands = ["df-", "dreamina-", "doubao-"];
        let name = brands.iter().find_map(|brand| model.strip_prefix(brand)).unwrap_or(model);
        let version = name.strip_prefix("sf-").or_else(|| name.strip_prefix("seedance-"))?;
        if let Some(rest) = version.strip_prefix("2-0-") {
            let continuation = !rest.starts_with("fast-");
            return Some(Self {
                audio: true,
                continuation,
                audio_input: true,
                chooses: true,
                ..NONE
            });
        }
        if version.starts_with("1-5-pro-") {
            return Some(Self { audio: true, draft: true, chooses: true, ..NONE });
        }
        version.starts_with("1-0-").then_some(Self { frames: true, ..NONE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec section 2.5, the model table.
    #[test]
    fn the_table_is_that_of_the_contract() {
        for (model, audio, draft, continuation) in [
            ("df-sf-2-0-260128", true, false, true),
            ("df-sf-2-0-fast-260128", true, false, false),
            ("df-sf-2-0-mini-260615", true, false, true),
            ("sf-1-5-pro-251215", true, true, false),
            ("sf-1-0-pro-250528", false, false, false),
            ("sf-1-0-pro-fast-251015", false, false, false),
            ("dreamina-seedance-2-0-260128", true, false, true),
            ("doubao-seedance-1-5-pro-251215", true, true, false),
        ] {
            let series = SeriesFeatures::from_model(model).expect(model);
            let found = (series.audio, series.draft, series.continuation);
            assert_eq!(found, (audio, draft, continuation), "{model}");
        }
        for model in ["", "my-alias", "sf-3-0-pro-270101", "df-2-0-260128", "seedream-4-0"] {
            assert_eq!(SeriesFeatures::from_model(model), None, "{model}");
        }
    }
}
