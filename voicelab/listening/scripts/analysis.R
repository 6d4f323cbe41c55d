# Analyze the responses of a listening test with lme4, lmerTest and ordinal:  Rscript analysis.R [votes.csv]
#
# Ratings: means of systems and differences of pairs by linear mixed models, value ~ 1 + (1 | listener) + (1 | item),
# REML, Satterthwaite's degrees of freedom; MOS, SMOS and DMOS also by a cumulative link model. AB, ABX: the same of choices,
# minus 0.5; exact binomial tests of all choices; logistic mixed models (Laplace approximation). A mean of n values has at least the
# variance of rounding, 1 / 12 / n, and at most the degrees of freedom of listeners and items together, or with five or fewer of
# either that number. Means of listeners: Wilcoxon's test (a normal approximation if there are ties), items fixed.
suppressMessages({library(lme4); library(lmerTest); library(ordinal)})
arguments <- commandArgs(trailingOnly = TRUE)
path <- if (length(arguments)) arguments[1] else "votes.csv"
votes <- read.csv(path, colClasses = "character", na.strings = character(), check.names = FALSE)
# Text that a spreadsheet would run as a formula has a quote before it.
votes[] <- lapply(votes, function(column) sub("^'('*[=+@\t\r\n＝＋－＠-])", "\\1", column))
votes <- votes[votes$counts == "True", ]
if ("rating" %in% names(votes)) votes$rating <- as.numeric(votes$rating)
kind <- votes$kind[1]; level <- if (kind == "ABX") 0.9 else 0.95  # ABX: one-sided tests
single <- c("MOS", "SMOS", "DMOS")
by_system <- c(single, "MUSHRA", "MUSHRA-NMR", "BWS", "transcription")
add <- function(figure, first, second, method, estimate = NA, low = NA, high = NA, error = NA, p = NA)
  results[[length(results) + 1]] <<- data.frame(figure, first, second, estimate, low, high, error, p, method)

crossed <- function(rows) min(length(unique(rows$listener)), length(unique(rows$item))) > 1
varies <- function(rows) crossed(rows) && diff(range(rows$value)) > 0 &&
  sum(resid(lm(value ~ listener + item, rows))^2) > 1e-9 * sum((rows$value - mean(rows$value))^2)

add_mean <- function(figure, rows, first, second = "") {
  if (!crossed(rows)) return(add(figure, first, second, "mean alone", mean(rows$value)))
  if (varies(rows)) {
    exact <- lmerControl(optCtrl = list(xtol_abs = 1e-10, ftol_abs = 1e-12))
    fit <- suppressMessages(lmerTest::lmer(value ~ 1 + (1 | listener) + (1 | item), rows, control = exact))
    mean <- coef(summary(fit))[1, 1]; error <- coef(summary(fit))[1, 2]; df <- coef(summary(fit))[1, 3]
  } else {
    means <- lapply(rows[c("listener", "item")], function(group) tapply(rows$value, group, mean))
    parts <- sapply(means, function(own) if (diff(range(own)) > 1e-9) var(own) / length(own) else 0)
    mean <- mean(rows$value); error <- sqrt(sum(parts)); df <- sum(parts)^2 / sum(parts^2 / (lengths(means) - 1))
  }
  counts <- c(length(unique(rows$listener)), length(unique(rows$item))); least <- sqrt(1 / 12 / nrow(rows))
  most <- if (min(counts) <= 5) min(counts) else sum(counts) - 2
  df <- if (error > least) min(df, most) else most; error <- max(error, least)
  half <- qt((1 + level) / 2, df) * error
  add(figure, first, second, if (varies(rows)) "mixed model" else "no residual variance", mean, mean - half, mean + half, error,
      if (second != "") 2 * pt(-abs(mean) / error, df) else NA)
}

differences <- function(one, two) {  # of choices 0.5 or -0.5
  columns <- if (kind == "CMOS") c("system", "against") else c("chosen", "other")
  if (kind %in% by_system) {
    cells <- aggregate(rating ~ listener + item + system, votes, mean)
    rows <- merge(cells[cells$system == one, ], cells[cells$system == two, ], by = c("listener", "item"))
    return(transform(rows, value = rating.x - rating.y))
  }
  rows <- votes[votes[[columns[1]]] %in% c(one, two) & votes[[columns[2]]] %in% c(one, two), ]
  if (kind == "CMOS") rows$value <- ifelse(rows$system == one, rows$rating, -rows$rating)
  else rows$value <- (if (kind == "ABX") rows$right == "True" else rows$chosen == one) - 0.5
  rows
}

options(width = 160)
responses <- votes
for (scale in if ("scale" %in% names(responses)) unique(responses$scale) else "") {
  votes <- if (scale == "") responses else responses[responses$scale == scale, ]
  if (scale != "") cat(scale, "\n")
  results <- list()
  systems <- sort(unique(unlist(votes[intersect(names(votes), c("system", "against", "chosen", "other"))])), method = "radix")
  if (kind %in% by_system)
    for (system in systems) add_mean("mean", transform(votes[votes$system == system, ], value = rating), system)
  if (kind == "MUSHRA") systems <- setdiff(systems, c("reference", "anchor35", "anchor70"))
  for (pair in if (length(systems) > 1) combn(systems, 2, simplify = FALSE)) {
    if (kind == "transcription") {  # each item heard with one system; without residual variance, means of listeners
      model <- if (crossed(votes)) lm(rating ~ system + listener + item, votes)
      if (is.null(model) || df.residual(model) < 1 || sum(resid(model)^2) < 1e-9 * nrow(votes)) {
        means <- tapply(votes$rating, list(votes$listener, factor(votes$system, systems)), mean)
        lead <- na.omit(round(means[, pair[1]] - means[, pair[2]], 12))
        if (length(lead) > 1 && any(lead != 0))
          add("means of listeners", pair[1], pair[2], "Wilcoxon's test", p = suppressWarnings(wilcox.test(lead)$p.value))
        next
      }
      rows <- transform(votes, system = relevel(factor(system), pair[2]))
      fit <- suppressMessages(lmerTest::lmer(rating ~ system + (1 | listener) + (1 | item), rows))
      line <- coef(summary(fit))[paste0("system", pair[1]), ]
      ends <- line[1] + qt(c(0.025, 0.975), line[3]) * line[2]
      add("difference", pair[1], pair[2], "mixed model", line[1], ends[1], ends[2], line[2], line[5])
      next
    }
    rows <- differences(pair[1], pair[2])
    if (!nrow(rows)) next
    if (kind %in% c("AB", "ABX")) {
      count <- sum(rows$value > 0)
      test <- binom.test(count, nrow(rows), alternative = if (kind == "ABX") "greater" else "two.sided")
      ends <- binom.test(count, nrow(rows), conf.level = level)$conf.int
      add("share", pair[1], pair[2], "exact binomial test", count / nrow(rows), ends[1], ends[2], p = test$p.value)
      add_mean("lead", rows, pair[1], pair[2])
      if (varies(rows)) {
        fit <- suppressMessages(glmer(value > 0 ~ 1 + (1 | listener) + (1 | item), rows, family = binomial))
        line <- coef(summary(fit))[1, ]
        ends <- line[1] + c(-1.96, 1.96) * line[2]
        add("log odds", pair[1], pair[2], "logistic mixed model", line[1], ends[1], ends[2], line[2], line[4])
      }
    } else add_mean("difference", rows, pair[1], pair[2])
    means <- round(tapply(rows$value, rows$listener, mean), 12)
    if (kind != "ABX" && length(means) > 1 && any(means != 0))
      add("means of listeners", pair[1], pair[2], "Wilcoxon's test", p = suppressWarnings(wilcox.test(means)$p.value))
  }
  if (length(results)) print(format(do.call(rbind, results), digits = 6), row.names = FALSE)
  if (kind %in% single && length(systems) > 1 && length(unique(votes$rating)) > 2)
    print(coef(summary(clmm(factor(rating) ~ system + (1 | listener) + (1 | item), transform(votes, system = factor(system))))))
}
