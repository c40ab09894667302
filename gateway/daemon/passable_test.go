package daemon

import (
	"testing"

	"github.com/millrace/millrace/gateway/config"
)

// One of two gateways can be upgraded, and passes no role to a file without one or with another index.
func TestWhichRoleAnUpgradePasses(t *testing.T) {
	with := func(index int, r *config.Role) *config.Config {
		return &config.Config{Sync: &config.Sync{Index: index, Role: r}}
	}
	for _, c := range []*config.Config{with(0, nil), with(1, &config.Role{})} {
		if err := (&Daemon{cfg: c}).passable(); err != nil {
			t.Error(err)
		}
	}
	for _, k := range []struct {
		was, is *config.Config
		ok      bool
	}{
		{with(1, &config.Role{}), with(1, &config.Role{Priority: 7}), true},
		{with(1, &config.Role{}), with(0, &config.Role{}), false},
		{with(1, &config.Role{}), with(1, nil), false},
		{with(1, &config.Role{}), &config.Config{}, false},
		{with(1, nil), with(0, &config.Role{}), true},
		{&config.Config{}, with(0, &config.Role{}), true},
	} {
		if got := samePlace(syncOf(k.was), syncOf(k.is)); got != k.ok {
			t.Errorf("%+v to %+v: %v", k.was.Sync, k.is.Sync, got)
		}
	}
}
