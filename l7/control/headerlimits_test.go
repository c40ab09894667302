package control

import (
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/side"
)

// The limits of a pool are those of its connections, and with others the pool has new connections.
func TestPoolsHaveTheirHeaderLimits(t *testing.T) {
	parse := func(limits string) *config.Pool {
		cfg, err := config.Parse("f", []byte("pools: [{name: p, limits: {"+limits+"}, backends: [{address: \"198.18.1.1:80\"}]}]\n"+
			"listeners: [{name: web, address: \"198.18.0.1:80\", protocol: HTTP}]\nroutes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		return &cfg.Pools[0]
	}
	before := parse("requests: 3")
	for limits, want := range map[string]side.HeaderLimits{
		"requests: 3":          {Bytes: 64 << 10, Fields: 200},
		"header_bytes: 1024":   {Bytes: 1024, Fields: 200},
		"header_fields: 10000": {Bytes: 64 << 10, Fields: 10000},
	} {
		c := parse(limits)
		p := &pooled{cfg: *c}
		if err := p.connections(&Set{}, &config.Config{}); err != nil || p.proxy.Header != want {
			t.Errorf("%s: %+v, %v", limits, p.proxy.Header, err)
		}
		if same := sameConnections(before, c); same != (limits == "requests: 3") {
			t.Errorf("%s: connections stay: %v", limits, same)
		}
	}
	for _, wrong := range []string{"header_bytes: 1023", "header_fields: 7", "header_fields: 10001", "header_bytes: 0"} {
		src := "pools: [{name: p, limits: {" + wrong + "}, backends: [{address: \"198.18.1.1:80\"}]}]\n"
		if _, err := config.Parse("f", []byte(src)); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
