module lmc0

go 1.19
