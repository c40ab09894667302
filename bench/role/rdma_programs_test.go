package role

import "testing"

func TestFiguresOfPerftestAreRead(t *testing.T) {
	const out = "---------\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\n" +
		" 8       1000          15.90          99.12        18.60  \t       19.01\t\t2.00\n---------\n"
	if n, typical, err := parseLatency(out); n != 1000 || typical != 18.6 || err != nil {
		t.Errorf("%d, %v, %v", n, typical, err)
	}
	if _, _, err := parseLatency("Couldn't connect to 198.18.0.1:18515\n"); err == nil {
		t.Error("figures of a program that failed")
	}
}
