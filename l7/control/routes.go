package control

import (
	"cmp"
	"maps"
	"slices"

	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/metrics"
)

// RouteStatus has the counters of a route.
type RouteStatus struct {
	Name      string            `json:"name"`
	Requests  uint64            `json:"requests"`
	Responses map[string]uint64 `json:"responses"` // by class
	Internal  uint64            `json:"internal_responses"`
	Retries   uint64            `json:"retries"`
	BytesIn   uint64            `json:"bytes_in"`
	BytesOut  uint64            `json:"bytes_out"`
}

// Routes returns the counters of all routes, those with the most requests first.
func Routes(s *Set) []RouteStatus {
	s.mu.Lock()
	routes := slices.Collect(maps.Values(s.routes))
	s.mu.Unlock()
	list := make([]RouteStatus, 0, len(routes))
	for _, r := range routes {
		c := r.Counts()
		one := RouteStatus{
			Name: r.Name, Requests: c[proxy.RouteRequests], Responses: map[string]uint64{}, Internal: c[proxy.RouteInternal], Retries: c[proxy.RouteRetries],
			BytesIn: c[proxy.RouteBytesIn], BytesOut: c[proxy.RouteBytesOut],
		}
		for k, class := range Classes {
			if n := c[int(proxy.RouteStatus)+k]; n > 0 {
				one.Responses[class] = n
			}
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b RouteStatus) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// Latency returns the times of requests, in nanoseconds, of all workers.
func Latency(s *Set) *metrics.Distribution {
	took := new(metrics.Distribution)
	for _, l := range s.loops {
		l.worker.Latency(took)
	}
	return took
}
