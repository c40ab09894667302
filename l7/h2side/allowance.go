package h2side

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http2"
)

// AllowTime is the time for which a peer may send one frame without effect, such as PING, beyond those that its messages and
// Options.MaxIdleFrames permit. A flood is faster, and keep-alives are slower however long the connection lives.
const AllowTime = 20 * time.Millisecond

// allowance permits frames of a connection as time passes.
type allowance struct {
	granted clock.Time // until when
}

// grant permits the frames for the time since the last call.
func (a *allowance) grant(m *http2.Machine, now clock.Time) {
	if n := now.Sub(a.granted) / AllowTime; n > 0 {
		a.granted = now
		m.Allow(int(min(n, 1<<20)))
	}
}
