package daemon

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
)

// An upgrade of one of two gateways is refused, with what to do instead.
func TestAnUpgradeOfOneOfTwoGatewaysIsRefused(t *testing.T) {
	for want, sync := range map[string]*config.Sync{
		"millrace gateway role standby":                  {Role: &config.Role{}},
		"the other gateway carries the connections over": {},
	} {
		d := &Daemon{cfg: &config.Config{Sync: sync}}
		if err := d.passable(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "stop and start") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
