package ring

import (
	"errors"
	"fmt"
)

// Holder owns frames: a pool, a driver, a batch between two of them.
type Holder interface {
	// Holds calls visit once for each frame owned, with any byte offset inside of the frame.
	Holds(visit func(off uint32))
}

// ErrAudit reports a frame with no owner or more than one.
var ErrAudit = errors.New("frame audit")

// Audit checks the rule that a frame has one owner: each of a's frames that was cut into pools is held
// exactly once among the holders, and no other frame is. A frame that none holds is leaked and one that
// two hold will be overwritten while it is read. Every owner must be named, and idle during the call.
func Audit(a *Arena, holders ...Holder) error {
	seen := make([]uint8, a.cut)
	var twice, outside int
	for _, h := range holders {
		h.Holds(func(off uint32) {
			f := int(off >> a.Shift)
			switch {
			case f >= a.cut:
				outside++
			case seen[f] != 0:
				twice++
			default:
				seen[f] = 1
			}
		})
	}
	missing := 0
	for _, s := range seen {
		if s == 0 {
			missing++
		}
	}
	if missing+twice+outside > 0 {
		return fmt.Errorf("%w: of %d frames %d are missing, %d held twice, %d outside of the pools",
			ErrAudit, a.cut, missing, twice, outside)
	}
	return nil
}
