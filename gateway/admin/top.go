package admin

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/millrace/millrace/l7/topk"
)

// Top holds the requests of listeners in a time, grouped by their properties, and the traffic of services.
type Top struct {
	topk.Result
	Services []ServiceTop `json:"services"` // backends with packets, those with the most first
}

// ServiceTop is a backend of a service at L4.
type ServiceTop struct {
	Service string  `json:"service"`
	Backend string  `json:"backend"`
	Opened  float64 `json:"opened_per_second"` // connections
	Packets float64 `json:"packets_per_second"`
	Bytes   float64 `json:"bytes_per_second"`
}

// Defaults of ParseTop.
const (
	TopTime = 2 * time.Second
	TopRows = 10
)

// ParseTop reads the parameters of a request for Top: interval and rows. It knows no others.
func ParseTop(v url.Values) (over time.Duration, rows int, err error) {
	over, rows = TopTime, TopRows
	for key, list := range v {
		switch key {
		case "interval":
			if over, err = time.ParseDuration(list[0]); err != nil || over < topk.MinTime || over > topk.MaxTime {
				return 0, 0, fmt.Errorf("interval is %q: say %v to %v", list[0], topk.MinTime, topk.MaxTime)
			}
		case "rows":
			if rows, err = strconv.Atoi(list[0]); err != nil || rows < 1 || rows > topk.MaxRows {
				return 0, 0, fmt.Errorf("rows is %q: say 1 to %d", list[0], topk.MaxRows)
			}
		default:
			return 0, 0, fmt.Errorf("there is no parameter %q, only interval and rows", key)
		}
	}
	return over, rows, nil
}

// PerSecond returns how much a counter has grown in a second. One that is smaller than before began anew, as that of a backend that was
// removed and is back.
func PerSecond(now, before uint64, over time.Duration) float64 {
	if now < before {
		before = 0
	}
	return float64(now-before) / over.Seconds()
}
