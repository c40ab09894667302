package socket

import (
	"testing"

	"github.com/millrace/millrace/tcp"
)

func TestStatsAreSums(t *testing.T) {
	sum := tcp.Stats{BytesIn: 3, Conns: 1}
	addFields(&sum, tcp.Stats{BytesIn: 4, Conns: 2, Memory: -2})
	if sum.BytesIn != 7 || sum.Conns != 3 || sum.Memory != -2 {
		t.Errorf("%+v", sum)
	}
}
