package config

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// Affinity keeps the requests or connections of a key at one backend, by a table of the gateway.
type Affinity struct {
	By      HashBy        // key "by": "client" (default), "header", "cookie" or "query"
	Name    string        // key "name", required by header, cookie and query
	TTL     time.Duration // key "ttl": after the last use of a key, default 30m
	Entries int           // key "entries": keys that are remembered at a time, default 65536
}

func newAffinity() *Affinity {
	return &Affinity{By: HashClient, TTL: 30 * time.Minute, Entries: 1 << 16}
}

// decodeAffinity reads the table of a pool.
func decodeAffinity(d *l7Decoder, n *yaml.Node, a *Affinity) {
	k := keyPlaces{"": n}
	d.Mapping(n, "affinity", k.under("",
		strictyaml.Optional("by", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "by", &a.By, HashClient, HashHeader, HashCookie, HashQuery)
		}),
		strictyaml.Optional("name", func(n *yaml.Node) { d.Text(n, "name", &a.Name) }),
		strictyaml.Optional("ttl", func(n *yaml.Node) { d.Duration(n, "ttl", &a.TTL, time.Second, 365*24*time.Hour) }),
		strictyaml.Optional("entries", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "entries", &a.Entries, 8, 1<<24) }),
	)...)
	switch named := a.By != HashClient; {
	case named && k["name"] == nil:
		d.Fail(n, "name the "+string(a.By), "affinity by %s lacks the key \"name\"", a.By)
	case !named && k["name"] != nil && a.By != "":
		d.Fail(k["name"], "leave it out", "name is not for affinity by %s", a.By)
	}
}

// checkAffinity reports what of a pool does not go with its affinity.
func (d *checker) checkAffinity(p *Pool, at *poolPlace) {
	switch {
	case p.Affinity == nil:
	case p.Sticky != nil:
		d.Fail(at.affinity, "leave one of them out", "pool %q has sticky, which names the backend by a cookie", p.Name)
	case p.Protocol == PoolTCP && p.Affinity.By != HashClient:
		d.Fail(at.affinity, "set `by: client`", "pool %q passes TCP through: there is no %s", p.Name, p.Affinity.By)
	}
}
