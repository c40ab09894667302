package config

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// guardDecoder reads the keys by which listeners and routes refuse requests.
type guardDecoder struct{ *l7Decoder }

// guardPlace is where the keys stand by which a listener or a route refuses requests.
type guardPlace struct {
	rateLimits []*yaml.Node
	auth       *yaml.Node
	authPool   *yaml.Node
	perUser    *yaml.Node // of concurrency
	files      []filePlace
}

// guardFields are the keys of a route by which it refuses requests.
func (d guardDecoder) guardFields(r *Route, at *guardPlace) []strictyaml.Field {
	return []strictyaml.Field{
		strictyaml.Optional("sources", func(n *yaml.Node) { d.sources(n, &r.Sources) }),
		strictyaml.Optional("rate_limits", func(n *yaml.Node) { r.RateLimits, at.rateLimits = d.references(n, "rate_limits") }),
		strictyaml.Optional("maintenance", func(n *yaml.Node) {
			r.Maintenance = &Maintenance{}
			d.Mapping(n, "maintenance",
				strictyaml.Optional("retry_after", func(n *yaml.Node) { d.wholeSeconds(n, "retry_after", &r.Maintenance.RetryAfter, 0, maxTimeout) }),
				strictyaml.Optional("allow", func(n *yaml.Node) { d.prefixes(n, "allow", &r.Maintenance.Allow) }))
		}),
		strictyaml.Optional("limits", func(n *yaml.Node) {
			d.Mapping(n, "limits", limit(d.decoder, "body_bytes", &r.Limits.BodyBytes, maxBodyBytes))
		}),
		strictyaml.Optional("error_pages", func(n *yaml.Node) { d.errorPages(n, &r.ErrorPages, at) }),
		strictyaml.Optional("auth", func(n *yaml.Node) { at.auth = n; r.Auth = &Auth{}; d.auth(n, r.Auth, at) }),
		strictyaml.Optional("concurrency", func(n *yaml.Node) {
			r.Concurrency = newConcurrency()
			k := keyPlaces{"": n}
			defer func() { d.checkConcurrency(r.Concurrency, k) }()
			d.Mapping(n, "concurrency", k.under("",
				strictyaml.Optional("per_user", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "per_user", &r.Concurrency.PerUser, 1, maxRate) }),
				strictyaml.Optional("requests", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "requests", &r.Concurrency.Requests, 0, maxRate) }),
				strictyaml.Optional("pending", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "pending", &r.Concurrency.Pending, 0, 1<<20) }),
				strictyaml.Optional("wait", func(n *yaml.Node) { d.Duration(n, "wait", &r.Concurrency.Wait, time.Millisecond, maxTimeout) }),
			)...)
			at.perUser = k["per_user"]
		}),
	}
}

// checkConcurrency reports bounds that bound nothing.
func (d guardDecoder) checkConcurrency(c *Concurrency, k keyPlaces) {
	if c.Requests == 0 && c.PerUser == 0 && !d.FailedAt(k[""]) {
		d.Fail(k[""], "add requests, or per_user", "concurrency bounds nothing")
	}
	for _, key := range []string{"pending", "wait"} {
		if k[key] != nil && c.Requests == 0 && c.PerUser > 0 {
			d.Fail(k[key], leaveOut, "%s is not for per_user: requests of a user beyond it get 429 at once", key)
		}
	}
}

// rateLimitPlace is where the parts of a rate limit stand.
type rateLimitPlace struct{ node, name *yaml.Node }

func (d guardDecoder) rateLimits(n *yaml.Node, c *Config) {
	d.List(n, "rate_limits", maxRateLimits, func(n *yaml.Node) {
		l, at := newRateLimit(), rateLimitPlace{node: n}
		k := keyPlaces{"": n}
		d.Mapping(n, "a rate limit", k.under("",
			strictyaml.Required("name", func(n *yaml.Node) { at.name = n; d.name(n, "name", &l.Name) }),
			strictyaml.Optional("key", func(n *yaml.Node) { d.rateKey(n, &l.Key) }),
			strictyaml.Required("requests", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "requests", &l.Requests, 1, 1_000_000) }),
			strictyaml.Optional("interval", func(n *yaml.Node) { d.Duration(n, "interval", &l.Interval, time.Second, 24*time.Hour) }),
			strictyaml.Optional("burst", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "burst", &l.Burst, 0, 1_000_000) }),
			strictyaml.Optional("keys", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "keys", &l.Keys, 16, maxRateKeys) }),
			strictyaml.Optional("announce", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "announce", &l.Announce, AnnounceRefused, AnnounceAlways, AnnounceNever)
			}),
			strictyaml.Optional("dry_run", func(n *yaml.Node) { d.Truth(n, "dry_run", &l.DryRun) }),
		)...)
		switch {
		case l.Interval%time.Second != 0:
			d.Fail(k["interval"], "write whole seconds, with fewer requests or more: the field RateLimit-Policy has no parts of them", "interval cannot be %v", l.Interval)
		case l.Requests > 0 && l.Burst > 0 && l.Interval/time.Duration(l.Requests) > mostSpent/time.Duration(l.Burst):
			d.Fail(k["burst"], "lower burst, or raise requests", "a burst of %d would take more than a year to be given back", l.Burst)
		case l.DryRun && l.Announce == AnnounceRefused && k["announce"] != nil:
			d.Fail(k["announce"], "leave it out, or take always", "announce has no effect: a dry run refuses nothing")
		}
		d.places.rateLimits = append(d.places.rateLimits, at)
		c.RateLimits = append(c.RateLimits, l)
	})
}

// rateKeyNeeds has the keys of a rate limit's key that are for some values of by.
var rateKeyNeeds = map[string][]RateBy{
	"name": {RateByHeader, RateByCookie, RateByQuery}, "value": {RateByValue},
	"prefix4": {RateByClient, RateByHeader, RateByCookie, RateByQuery}, "prefix6": {RateByClient, RateByHeader, RateByCookie, RateByQuery},
}

func (d guardDecoder) rateKey(n *yaml.Node, to *RateKey) {
	k := keyPlaces{"": n}
	d.Mapping(n, "key", k.under("",
		strictyaml.Optional("by", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "by", &to.By, RateByClient, RateByHeader, RateByCookie, RateByQuery, RateByPath, RateByValue, RateByUser, RateByAll)
		}),
		strictyaml.Optional("name", func(n *yaml.Node) { d.token(n, "name", &to.Name) }),
		strictyaml.Optional("value", func(n *yaml.Node) { d.variableText(n, &to.Value) }),
		strictyaml.Optional("prefix4", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "prefix4", &to.Prefix4, 1, 32) }),
		strictyaml.Optional("prefix6", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "prefix6", &to.Prefix6, 1, 128) }),
	)...)
	if to.By == RateByHeader {
		if to.Name = strings.ToLower(to.Name); to.Name != "" && !semantics.IsName(to.Name) {
			d.Fail(k["name"], "", "%q is not a name of a field", to.Name)
		}
	}
	for _, key := range []string{"name", "value", "prefix4", "prefix6"} {
		fits := false
		for _, by := range rateKeyNeeds[key] {
			fits = fits || to.By == by
		}
		switch required := key == "name" || key == "value"; {
		case k[key] != nil && !fits:
			d.Fail(k[key], leaveOut, "%s is not for `by: %s`", key, to.By)
		case k[key] == nil && fits && required:
			d.Fail(k[""], "", "`by: %s` lacks the key %q", to.By, key)
		}
	}
}

// variableText reads text with at least one variable that differs between requests of a kind, and not in each of them.
func (d guardDecoder) variableText(n *yaml.Node, to *string) {
	if d.scalar(n, "value", to); *to == "" {
		return
	}
	t, err := rewrite.ParseTemplate(*to)
	switch {
	case err != nil:
		d.Fail(n, strictyaml.Allowed(rewrite.Variables()), "%s", err)
	case t == nil:
		d.Fail(n, "`by: all` counts all requests together", "value %q has no variable", *to)
	case t.Identifies():
		d.Fail(n, "take another variable", "each request has a request_id of its own: nothing would be limited")
	}
}
