//! Queries of customers, of which upstreams get the parameters that an operation lists.
//!
//! Customers put keys, tracking parameters and remains of their SDKs into queries. Whatever is not
//! listed is dropped, and what is listed goes on byte for byte.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Keeps the parameters of a query that have one of these names, in their order; `None` where nothing is
/// left.
#[must_use]
pub fn retain<'q>(query: &'q str, names: &[&str]) -> Option<Cow<'q, str>> {
    let is_kept = |parameter: &&str| is_listed(parameter, names);
    if !query.is_empty() && query.split('&').all(|parameter| is_kept(&parameter)) {
        return Some(Cow::Borrowed(query));
    }
    let kept: Vec<&str> = query.split('&').filter(is_kept).collect();
    (!kept.is_empty()).then(|| Cow::Owned(kept.join("&")))
}

fn is_listed(parameter: &str, names: &[&str]) -> bool {
    let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
    // Some servers divide parameters by semicolons too: another one would follow.
    !parameter.contains(';')
        && percent_decode_str(name).decode_utf8().is_ok_and(|name| names.contains(&&*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_parameters_pass_byte_for_byte_and_others_are_dropped() {
        let names = ["beta", "include[]", "limit"];
        for (query, expected) in [
            ("beta=true", Some("beta=true")),
            ("beta", Some("beta")),
            ("beta=%74rue&limit=", Some("beta=%74rue&limit=")),
            ("include%5B%5D=a&include[]=b", Some("include%5B%5D=a&include[]=b")),
            ("key=sk-customer&beta=true", Some("beta=true")),
            ("beta=true&api_key=x&limit=2&", Some("beta=true&limit=2")),
            ("Beta=true", None),
            ("beta=true;key=sk-customer", None),
            ("../x", None),
            ("beta%00=true", None),
            ("b%65ta=true", Some("b%65ta=true")),
            ("", None),
            ("&", None),
            ("=beta", None),
        ] {
            assert_eq!(retain(query, &names).as_deref(), expected, "{query}");
        }
        assert_eq!(retain("beta=true", &[]), None);
    }
}
