# Compute the figures of a listening test's report anew from its votes.csv, without voicelab, and compare.
#
#   Rscript recompute.R            in the folder of the report; needs lme4, lmerTest and jsonlite
#
# It ends with status 1 where a figure differs.
suppressMessages({library(lme4); library(lmerTest); library(jsonlite)})

study <- fromJSON("study.json")
kind <- study$kind
votes <- read.csv("votes.csv", check.names = FALSE, na.strings = "")
votes <- votes[votes$counts == "True", ]
votes$listener <- as.character(votes$listener)
votes$item <- as.character(votes$item)
anew <- list()
add <- function(name, value, first = "", second = "") anew[[paste(name, first, second, sep = "\r")]] <<- value

signed_rank <- function(d) {
  d <- d[d != 0]
  if (!length(d)) return(1)
  ranks <- round(2 * rank(abs(round(d, 12))))
  ways <- c(1, numeric(sum(ranks)))
  for (r in ranks) ways <- ways + c(numeric(r), head(ways, -r))
  ways <- ways / sum(ways)
  here <- sum(ranks[d > 0])
  min(1, 2 * min(sum(ways[0:here + 1]), sum(ways[(here + 1):length(ways)])))
}

alpha <- function(table, level) {
  codes <- sort(unique(table[!is.na(table)]))
  counts <- t(apply(table, 2, function(column) sapply(codes, function(code) sum(column == code, na.rm = TRUE))))
  counts <- counts[rowSums(counts) > 1, , drop = FALSE]
  totals <- colSums(counts)
  at <- if (level == "ordinal") cumsum(totals) - totals / 2 else codes
  steps <- outer(at, at, "-")^2
  pairs <- Reduce(`+`, lapply(seq_len(nrow(counts)), function(i)
    (outer(counts[i, ], counts[i, ]) - diag(counts[i, ], length(codes))) / (sum(counts[i, ]) - 1)))
  expected <- (outer(totals, totals) - diag(totals, length(codes))) / (sum(totals) - 1)
  1 - sum(pairs * steps) / sum(expected * steps)
}

# Where a variance is 0 the likelihood may be so flat that lmer stops short of it, with other degrees of freedom.
crossed <- function(rows) {
  groups <- c("listener", "item")
  repeat {
    if (!length(groups)) {
      line <- summary(lm(value ~ 1, data = rows))$coefficients[1, ]
      return(c(line[["Estimate"]], line[["Std. Error"]], nrow(rows) - 1))
    }
    formula <- as.formula(paste("value ~ 1 +", paste0("(1 | ", groups, ")", collapse = " + ")))
    fit <- suppressMessages(lmerTest::lmer(formula, data = rows))
    ratios <- getME(fit, "theta")
    if (min(ratios) > 0.02) break
    groups <- setdiff(groups, sub("[.].*", "", names(which.min(ratios))))
  }
  line <- summary(fit)$coefficients[1, ]
  c(line[["Estimate"]], line[["Std. Error"]], line[["df"]])
}

add("listeners", length(unique(votes$listener)))
add("sentences", length(unique(votes$item)))
add("votes", nrow(votes))
if (kind %in% c("MOS", "MUSHRA")) {
  for (system in unique(votes$system)) {
    r <- votes$rating[votes$system == system]
    q <- quantile(r, c(.25, .5, .75), names = FALSE)
    for (f in list(c("mean", mean(r)), c("sd", sd(r)), c("votes", length(r)), c("q1", q[1]), c("median", q[2]), c("q3", q[3])))
      add(f[1], as.numeric(f[2]), system)
  }
  table <- tapply(votes$rating, list(paste(votes$item, votes$system, sep = "\r"), votes$listener), mean)
  if (!anyNA(table) && min(dim(table)) > 1) {
    n <- nrow(table); k <- ncol(table); m <- mean(table)
    between <- k * sum((rowMeans(table) - m)^2); judges <- n * sum((colMeans(table) - m)^2)
    bms <- between / (n - 1); jms <- judges / (k - 1)
    ems <- (sum((table - m)^2) - between - judges) / ((n - 1) * (k - 1))
    add("icc(2,1)", (bms - ems) / (bms + (k - 1) * ems + k * (jms - ems) / n))
    add("icc(2,k)", (bms - ems) / (bms + (jms - ems) / n))
  }
  add("alpha", alpha(t(table), if (kind == "MOS") "ordinal" else "interval"))
}
for (pair in combn(study$systems, 2, simplify = FALSE)) {
  one <- pair[1]; two <- pair[2]
  if (kind %in% c("MOS", "MUSHRA")) {
    both <- merge(votes[votes$system == one, c("listener", "item", "rating")],
                  votes[votes$system == two, c("listener", "item", "rating")], by = c("listener", "item"))
    rows <- data.frame(listener = both$listener, item = both$item, value = both$rating.x - both$rating.y)
    systems <- votes[votes$system %in% study$systems, ]
    means <- tapply(systems$rating, list(systems$listener, systems$system), mean)
    means <- means[complete.cases(means), , drop = FALSE]
    apart <- means[, one] - means[, two]
  } else if (kind == "CMOS") {
    rows <- votes[votes$system %in% pair & votes$against %in% pair, ]
    rows$value <- ifelse(rows$system == one, rows$rating, -rows$rating)
    apart <- tapply(rows$value, rows$listener, mean)
  } else {
    rows <- votes[votes$chosen %in% pair & votes$other %in% pair, ]
    rows$value <- (if (kind == "ABX") rows$right == "True" else rows$chosen == one) - 0.5
    apart <- tapply(rows$value, rows$listener, mean)
  }
  if (kind != "ABX") add("wilcoxon p", signed_rank(apart), one, two)
  if (length(unique(rows$listener)) > 1 && length(unique(rows$item)) > 1 && length(unique(rows$value)) > 1) {
    fit <- crossed(rows)
    add("difference", fit[1], one, two)
    add("error", fit[2], one, two)
    add("df", fit[3], one, two)
    if (kind %in% c("AB", "ABX")) {
      cat(sprintf("%s against %s: the logistic model by lme4's glmer, to be seen beside the text:\n", one, two))
      print(summary(glmer(I(value > 0) ~ 1 + (1 | listener) + (1 | item), data = rows, family = binomial))$coefficients)
    }
  }
}
if (kind %in% c("AB", "ABX") && "first" %in% names(votes)) {
  first <- votes$first == "True"
  add("share of the first", mean(first))
  add("share of the first: p", binom.test(sum(first), length(first))$p.value)
}
if (kind == "CMOS") {
  means <- tapply(votes$rating, votes$listener, mean)
  add("mean of the second over the first", mean(means))
  if (length(means) > 1 && diff(range(means)) > 0) add("mean of the second over the first: p", t.test(means)$p.value)
}
if ("place" %in% names(votes)) {
  half <- votes$place >= ave(votes$place, votes$listener, FUN = median)
  for (name in intersect(c("seconds", "rating"), names(votes))) {
    both <- tapply(votes[[name]], list(votes$listener, half), mean)
    both <- both[complete.cases(both), , drop = FALSE]
    if (ncol(both) < 2) next
    add(paste0(name, ", first half"), mean(both[, "FALSE"]))
    add(paste0(name, ", second half"), mean(both[, "TRUE"]))
    apart <- both[, "TRUE"] - both[, "FALSE"]
    if (length(apart) > 1 && diff(range(apart)) > 0) add(paste0(name, ", halves: p"), t.test(apart)$p.value)
  }
}

printed <- read.csv("figures.csv", na.strings = NULL, colClasses = c("character", "character", "character", "numeric"))
other <- 0
for (i in seq_len(nrow(printed))) {
  row <- printed[i, ]
  value <- anew[[paste(row$figure, row$first, row$second, sep = "\r")]]
  same <- !is.null(value) && is.finite(value) && abs(value - row$value) <= max(2e-3 * abs(row$value), 2e-4)
  other <- other + !same
  cat(sprintf("%-6s %-50s %.6g %.6g\n", if (same) "same" else "OTHER", paste(row$figure, row$first, row$second),
              row$value, if (is.null(value)) NaN else value))
}
cat(sprintf("%d figures, %d of them other\n", nrow(printed), other))
quit(status = as.integer(other > 0))
