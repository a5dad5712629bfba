//! An invoice in each of the providers' formats.

use super::{Bill, BillKey, DAYS, FIRST_DAY, Simulation, UNITS};
use tollgate_reconcile::{Day, Femtousd, Provider};

impl Simulation {
    /// The provider's files for the invoice.
    pub(super) fn files(&self, provider: Provider) -> Vec<String> {
        match provider {
            Provider::OpenAi => vec![self.openai_usage(), self.openai_costs()],
            Provider::Anthropic => vec![self.anthropic_usage(), self.anthropic_costs()],
            Provider::OpenRouter => vec![self.openrouter()],
            Provider::Csv => vec![self.csv()],
        }
    }

    /// A bucket for each day with what `result` writes of a bill.
    fn buckets(
        &self,
        bounds: impl Fn(u32) -> String,
        result: impl Fn(&BillKey, &Bill) -> Vec<String>,
    ) -> String {
        let days = (FIRST_DAY..FIRST_DAY + DAYS).map(|day| {
            let bills = self.bills.iter().filter(|(key, _)| key.0 == day);
            let results: Vec<_> = bills.flat_map(|(key, bill)| result(key, bill)).collect();
            format!("{{{}, \"results\": [{}]}}", bounds(day), results.join(", "))
        });
        let days: Vec<_> = days.collect();
        format!("{{\"data\": [{}], \"has_more\": false}}", days.join(", "))
    }

    fn openai_usage(&self) -> String {
        self.buckets(seconds, |(_, model, credential), bill| {
            let [input, cached, _, _, output] = bill.counts;
            vec![format!(
                "{{\"object\": \"organization.usage.completions.result\", \"model\": \
                 \"{model}-2025-08-07\", \"api_key_id\": \"key_{credential}\", \"project_id\": \
                 \"proj_1\", \"num_model_requests\": {}, \"input_tokens\": {}, \
                 \"input_cached_tokens\": {cached}, \"output_tokens\": {output}}}",
                bill.calls,
                input + cached
            )]
        })
    }

    fn openai_costs(&self) -> String {
        self.buckets(seconds, |(_, model, credential), bill| {
            // The tier keeps the items of both keys apart, as OpenAI would have added them up.
            let whole = bill.amount(model).get();
            let half = whole / 2;
            let item = |words: &str, amount: i128| {
                format!(
                    "{{\"object\": \"organization.costs.result\", \"project_id\": \"proj_1\", \
                     \"amount\": {{\"value\": {}, \"currency\": \"usd\"}}, \"line_item\": \
                     \"{credential} | {model}-2025-08-07, {words}\"}}",
                    Femtousd::new(amount)
                )
            };
            vec![item("input", half), item("output", whole - half)]
        })
    }

    fn anthropic_usage(&self) -> String {
        self.buckets(times, |(_, model, credential), bill| {
            let [input, cached, short, long, output] = bill.counts;
            vec![format!(
                "{{\"model\": \"{model}-20250807\", \"api_key_id\": \"key_{credential}\", \
                 \"workspace_id\": null, \"uncached_input_tokens\": {input}, \
                 \"cache_read_input_tokens\": {cached}, \"cache_creation\": \
                 {{\"ephemeral_5m_input_tokens\": {short}, \"ephemeral_1h_input_tokens\": {long}}}, \
                 \"output_tokens\": {output}, \"server_tool_use\": {{\"web_search_requests\": 0}}}}"
            )]
        })
    }

    fn anthropic_costs(&self) -> String {
        self.buckets(times, |(_, model, credential), bill| {
            vec![format!(
                "{{\"amount\": \"{}\", \"currency\": \"USD\", \"workspace_id\": \"wrkspc_1\", \
                 \"description\": \"{model} by {credential}\", \"model\": \"{model}-20250807\", \
                 \"token_type\": \"output_tokens\"}}",
                Femtousd::new(bill.amount(model).get() * 100)
            )]
        })
    }

    fn openrouter(&self) -> String {
        let items = self.bills.iter().map(|((day, model, credential), bill)| {
            let [input, cached, short, long, output] = bill.counts;
            format!(
                "{{\"date\": \"{}\", \"model\": \"{model}\", \"model_permaslug\": \
                 \"{model}-2025-08-07\", \"endpoint_id\": \"{credential}\", \"usage\": {}, \
                 \"byok_usage_inference\": 0, \"requests\": {}, \"prompt_tokens\": {}, \
                 \"completion_tokens\": {output}, \"reasoning_tokens\": 7}}",
                date(*day),
                bill.amount(model),
                bill.calls,
                input + cached + short + long
            )
        });
        let items: Vec<_> = items.collect();
        format!("{{\"data\": [{}]}}", items.join(", "))
    }

    fn csv(&self) -> String {
        let mut text = "day,model,credential,unit,quantity,amount\n".to_owned();
        for ((day, model, credential), bill) in &self.bills {
            let place = format!("{},{model},key_{credential}", date(*day));
            for (unit, count) in UNITS.iter().zip(bill.counts) {
                text.push_str(&format!("{place},{},{count},\n", unit.info().name));
            }
            text.push_str(&format!(
                "{place},calls,{},\n{place},,,{}\n",
                bill.calls,
                bill.amount(model)
            ));
        }
        text
    }
}

fn seconds(day: u32) -> String {
    let start = u64::from(day) * 86_400;
    format!("\"start_time\": {start}, \"end_time\": {}", start + 86_400)
}

fn times(day: u32) -> String {
    format!(
        "\"starting_at\": \"{}T00:00:00Z\", \"ending_at\": \"{}T00:00:00Z\"",
        date(day),
        date(day + 1)
    )
}

pub(super) fn date(day: u32) -> String {
    Day::from_number(day).expect("a day").to_string()
}
