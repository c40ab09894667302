package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/app/doctor"
)

func TestDoctorTextAndJSONAgree(t *testing.T) {
	code, out, err := run("doctor", "--json", "--iface", "lo")
	var rep doctor.Report
	decode(t, out, &rep)
	if want := map[bool]int{false: exitOK, true: exitFailure}[rep.Failed()]; code != want || err != "" {
		t.Errorf("code %d, want %d; %q", code, want, err)
	}
	if len(rep.Interfaces) != 1 || rep.Interfaces[0].Name != "lo" {
		t.Errorf("interfaces %v, want lo", rep.Interfaces)
	}
	again, text, _ := run("doctor", "-i", "lo")
	if again != code {
		t.Errorf("code %d with --json, %d without", code, again)
	}
	for _, c := range rep.Checks {
		if !strings.Contains(text, c.Name) || !strings.Contains(text, c.Remedy) {
			t.Errorf("%q or its remedy %q is missing in:\n%s", c.Name, c.Remedy, text)
		}
	}
}

func TestColoursAreForTerminalsOnly(t *testing.T) {
	rep := &doctor.Report{Checks: []doctor.Check{
		{Area: "kernel", Name: "release", Status: doctor.OK, Found: "6.12"},
		{Area: "kernel", Name: "BTF", Status: doctor.Fail, Found: "missing", Remedy: "install it"},
	}}
	var plain, colours bytes.Buffer
	showReport(&console{out: &plain}, rep)
	showReport(&console{out: &colours, colour: true}, rep)
	want := `kernel
  ok    release  6.12
  fail  BTF      missing
                 -> install it

1 ok, 0 warn, 1 fail
`
	if plain.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", plain.String(), want)
	}
	if !strings.Contains(colours.String(), "\x1b[31mfail\x1b[0m") {
		t.Errorf("fail is not red: %q", colours.String())
	}
}
