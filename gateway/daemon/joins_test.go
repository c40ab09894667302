package daemon

import (
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/stack"
)

// Datagrams of one client's port may belong to several connections of QUIC, which only connection IDs tell apart, and a limit on
// packets counts each: a joined one would get all to one backend, or count once.
func TestDatagramsAreJoinedWhereAllAreAlike(t *testing.T) {
	plain := config.Service{}
	for name, c := range map[string]struct {
		cfg  config.Config
		want stack.GRO
	}{
		"nothing":               {config.Config{Services: []config.Service{plain}}, stack.GROAll},
		"connection IDs":        {config.Config{Services: []config.Service{plain, {QUIC: &config.QUIC{}}}}, stack.GROTCP},
		"limit of a service":    {config.Config{Services: []config.Service{{Limits: config.Limits{Packets: 9}}, plain}}, stack.GROTCP},
		"limit of all services": {config.Config{Limits: config.Limits{Packets: 9}}, stack.GROTCP},
		"limit of connections":  {config.Config{Limits: config.Limits{Connections: 9}}, stack.GROAll},
	} {
		if got := joins(&c.cfg); got != c.want {
			t.Errorf("%s: joins %v, want %v", name, got, c.want)
		}
	}
}
