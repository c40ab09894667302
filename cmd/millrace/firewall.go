package main

import "github.com/millrace/millrace/l7/waf"

// firewall reads rules of web application firewalls; nil of a program that is built without an engine for them.
var firewall waf.Compiler
