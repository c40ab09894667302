package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/gateway/bgp"
)

// showBGP prints the sessions with routers, and the announced prefixes.
func showBGP(c *console, st *bgp.Status) {
	var list []string
	for _, r := range st.Routes[:min(len(st.Routes), mostPrefixes)] {
		text := r.Prefix.String()
		if r.Shutdown {
			text += " " + c.paint(yellow, "(graceful shutdown)")
		}
		list = append(list, text)
	}
	if more := len(st.Routes) + st.More - len(list); more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	if len(list) == 0 {
		list = []string{"nothing"}
	}
	up := 0
	for i := range st.Peers {
		if st.Peers[i].State == bgp.Established {
			up++
		}
	}
	c.line("bgp", "AS %d, router id %v, to %d of %d routers: %s", st.AS, st.RouterID, up, len(st.Peers), strings.Join(list, ", "))
	for i := range st.Peers {
		p := &st.Peers[i]
		since := time.Since(p.Since).Round(time.Second)
		if p.State == bgp.Established {
			c.line("router", "%v, AS %d: %v for %v, %s, hold %v; announced %d, received %d, lost %d", p.Address, p.AS, p.State, since,
				strings.Join(p.Families, " and "), time.Duration(p.HoldTime*float64(time.Second)), p.Prefixes, p.Received, p.Lost)
			continue
		}
		c.line("router", "%v, AS %d: %s for %v, lost %d, failed %d", p.Address, p.AS, c.paint(red, p.State.String()), since, p.Lost, p.Failed)
		if p.LastError != "" {
			c.printf("  %s\n", c.paint(red, p.LastError))
		}
	}
}

// mostPrefixes is the number of prefixes that the status as text has; --json has more.
const mostPrefixes = 16
