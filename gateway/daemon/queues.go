package daemon

import (
	"fmt"

	"github.com/millrace/millrace/gateway/config"
)

// settleQueues finds out what `queues: auto` is. count tells how many queues an interface receives
// on. Loop i serves queue i of every device, and packets on a queue that no loop serves would go to the
// kernel: so all have to have as many.
func settleQueues(cfg *config.Config, count func(device string) (int, error)) error {
	if cfg.Loops() != config.QueuesAuto {
		return nil
	}
	var least int
	var first, other string // with the least, and with another number
	for _, dev := range cfg.Devices {
		n, err := count(dev.Name)
		if err != nil {
			return fmt.Errorf("queues: auto: %w", err)
		}
		switch {
		case least == 0:
			least, first = n, dev.Name
		case n < least:
			least, first, other = n, dev.Name, first
		case n > least:
			other = dev.Name
		}
	}
	const remedy = "`ethtool -L %s combined %d`, or write a number for queues"
	if other != "" {
		return fmt.Errorf("queues: auto: %s receives on %d queues and %s on more ("+remedy+")", first, least, other, other, least)
	}
	if least > config.MaxQueues {
		return fmt.Errorf("queues: auto: %s receives on %d queues, at most %d are served ("+remedy+")", first, least, config.MaxQueues, first, config.MaxQueues)
	}
	cfg.SetQueues(least)
	if list := cfg.CPUs.List; len(list) > 0 && len(list) != least {
		return fmt.Errorf("queues: auto: cpus names %d CPUs for %d loops (name one for each)", len(list), least)
	}
	return nil
}
