package inspect

import "testing"

// TestCountersOfFlows has rules that count messages of a flow, and what Suricata says of a counter that is not there.
func TestCountersOfFlows(t *testing.T) {
	l := newLab(t, `alert udp any any -> any any (content:"one"; flowint:seen,+,1; sid:1;)
alert udp any any -> any any (content:"one"; flowint:seen,>,2; sid:2;)
alert udp any any -> any any (content:"two"; flowint:seen,notset; sid:3;)
alert udp any any -> any any (content:"two"; flowint:seen,isset; sid:4;)
alert udp any any -> any any (content:"six"; flowint:none,!=,5; sid:5;)
alert udp any any -> any any (content:"six"; flowint:none,-,1; sid:6;)
alert udp any any -> any any (content:"ten"; flowint:none,isset; sid:7;)
alert udp any any -> any any (content:"six"; flowint:copy,=,seen; sid:8;)
alert udp any any -> any any (content:"ten"; flowint:copy,==,seen; flowint:copy,<=,3; flowint:copy,!=,absent; sid:9;)
alert udp any any -> any any (content:"ten"; flowint:copy,<,3; sid:10;)
alert udp any any -> any any (content:"ten"; flowint:low,-,4; flowint:low,=,0; flowint:low,-,1; sid:11;)
alert udp any any -> any any (content:"end"; flowint:low,==,4294967295; sid:12;)
alert udp any any -> any any (content:"end"; flowbits:isset,low; sid:13;)
alert udp any any -> any any (content:"end"; flowint:low,>=,seen; flowint:absent,notset; sid:14;)`)
	for _, c := range []struct{ payload, want string }{
		{"two", "3"}, {"one", "1"}, {"one", "1"}, {"one", "1 2"}, {"two", "4"}, {"six", "6 8"}, {"ten", "11 9"}, {"end", "12 14"},
	} {
		l.alerts = nil
		l.udp(9, c.payload)
		l.want(c.payload, c.want)
	}
	l.alerts = nil
	l.udp(10, "one two")
	l.want("another flow", "1 4")
}

// TestCountersCountPackets has a rule of nothing but a counter, and one that asks behind it whatever their order in the file.
func TestCountersCountPackets(t *testing.T) {
	l := newLab(t, `alert udp any any -> any any (content:"end"; flowint:all,>=,3; flowint:all,<=,3; sid:1;)
alert udp any any -> any any (content:"end"; flowint:all,>=,4; sid:2;)
alert udp any any -> any any (flowint:all,+,1; noalert; sid:3;)
alert udp any any -> any any (content:"one"; flowint:both,isset; sid:4;)
alert udp any any -> any any (content:"one"; flowint:all,==,1; flowint:both,=,1; sid:5;)`)
	l.udp(9, "one")
	l.want("one packet", "4 5")
	l.alerts = nil
	l.udp(9, "end")
	l.want("two packets", "")
	l.udp(9, "end")
	l.want("three", "1")
	l.udp(9, "end")
	l.want("four", "1 2")
}

// TestCountersWantAFlow has packets of none: fragments.
func TestCountersWantAFlow(t *testing.T) {
	l := newLab(t, `alert ip any any -> any any (fragbits:M; flowint:ab,notset; sid:1;)
alert ip any any -> any any (fragbits:M; flowint:ab,+,1; sid:2;)`)
	l.frame(fragmentFrame(1, 100))
	l.want("a fragment", "2")
}

// TestCountersOutliveASwap wants a counter kept where other rules name it.
func TestCountersOutliveASwap(t *testing.T) {
	l := newLab(t, `alert udp any any -> any any (content:"one"; flowint:seen,+,1; flowbits:set,seen; noalert; sid:1;)`)
	l.udp(9, "one")
	l.e.Swap(rulesOf(t, `alert udp any any -> any any (content:"two"; flowint:other,notset; flowint:seen,==,1; sid:2;)`, l.e.rules), l.e.cfg)
	l.udp(9, "two")
	l.want("behind a swap", "2")
}
