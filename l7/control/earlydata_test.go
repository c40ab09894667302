package control

import (
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
)

func TestEarlyDataIsOffUnlessTheListenerHasIt(t *testing.T) {
	for _, want := range []bool{false, true} {
		l := &config.Listener{Name: "a", Protocol: config.ListenerHTTPS, Versions: []config.HTTPVersion{config.HTTP3}, EarlyData: want}
		var out proxy.Listener
		(&Set{}).planHTTP(&plan{cfg: &config.Config{}}, l, &out)
		if got := out.HTTP3.QUIC.ZeroRTT; got != want {
			t.Errorf("early data is taken: %v, want %v", got, want)
		}
	}
}
