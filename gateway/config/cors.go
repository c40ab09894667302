package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/l7/route"
)

// words is a key with one or more words of a form.
func (d *l7Decoder) words(key string, to *[]string, valid func(string) bool) strictyaml.Field {
	return strictyaml.Optional(key, func(n *yaml.Node) {
		d.OneOrMore(n, key, maxLists, func(n *yaml.Node) {
			if s := ""; d.Text(n, key, &s) {
				if !valid(s) {
					d.Fail(n, "", "%s cannot be %q", key, s)
					return
				}
				*to = append(*to, s)
			}
		})
	})
}

// origin reports whether s is an origin as browsers write it, with a wildcard in place of the first labels, or all of them.
func origin(s string) bool {
	if s == "*" {
		return true
	}
	scheme, host, ok := strings.Cut(s, "://")
	name, port, hasPort := strings.Cut(host, ":")
	return ok && (scheme == "http" || scheme == "https") && s == strings.ToLower(s) && route.CheckHost(name) == nil &&
		(!hasPort || port != "" && strings.Trim(port, "0123456789") == "")
}

// checkCORS reports what browsers would take for nothing.
func (d *l7Decoder) checkCORS(f *Filter, k keyPlaces) {
	switch any := slices.Contains(f.AllowOrigins, "*"); {
	case k["allow_origins"] == nil:
		d.Fail(k[""], "such as https://a.example, https://*.a.example or \"*\"", "CORS lacks the key \"allow_origins\"")
	case any && len(f.AllowOrigins) > 1:
		d.Fail(k["allow_origins"], "leave the others out", "allow_origins has \"*\" beside others")
	case any && f.AllowCredentials:
		d.Fail(k["allow_credentials"], "name origins in allow_origins", "allow_credentials does not go with \"*\": scripts of every site would act as the user")
	}
}
