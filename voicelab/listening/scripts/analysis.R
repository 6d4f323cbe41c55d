# Analyze the responses of a listening test with lme4, lmerTest and ordinal:  Rscript analysis.R [votes.csv]
#
# Ratings: means of systems and differences of pairs by linear mixed models, value ~ 1 + (1 | listener) + (1 | item),
# REML, Satterthwaite's degrees of freedom; MOS, SMOS and DMOS also by a cumulative link model. AB, ABX: the same of choices,
# minus 0.5; exact binomial tests of all choices; logistic mixed models (Laplace approximation). A mean of n values has at least the
# variance of rounding, 1 / 12 / n, and at most the degrees of freedom of listeners and items together, or with five or fewer of
# either that number. Transcription: words correct ~ system, with interactions of system with listener and item as random
# effects, too; without residual variance, means of listeners. Means of listeners: Wilcoxon's test (a normal approximation if there are ties), items fixed.
suppressMessages({library(lme4); library(lmerTest); library(ordinal)})
arguments <- commandArgs(trailingOnly = TRUE)
path <- if (length(arguments)) arguments[1] else "votes.csv"
votes <- read.csv(path, colClasses = "character", na.strings = character(), check.names = FALSE)
# Text that a spreadsheet would run as a formula has a quote before it.
votes[] <- lapply(votes, function(column) sub("^'('*[=+@\t\r\n＝＋－＠-])", "\\1", column))
votes <- votes[votes$counts == "True", ]
if ("rating" %in% names(votes)) votes$rating <- as.numeric(votes$rating)
kind <- votes$kind[1]; level <- if (kind == "ABX") 0.9 else 0.95  # ABX: one-sided tests
choices <- c("AB", "ABX"); named <- c("system", "against", "chosen", "other")
add <- function(figure, first, second, method, estimate = NA, low = NA, high = NA, error = NA, p = NA)
  results[[length(results) + 1]] <<- data.frame(figure, first, second, estimate, low, high, error, p, method)

add_mean <- function(figure, rows, first, second = "") {  # the mean of value, or the lead of a system
  counts <- c(length(unique(rows$listener)), length(unique(rows$item)))
  if (min(counts) < 2) return(add(figure, first, second, "mean alone", mean(rows$value)))
  fixed <- if ("ahead" %in% names(rows)) "ahead" else "1"; method <- "no residual variance"
  if (sum(resid(lm(reformulate(c(fixed, "listener", "item"), "value"), rows))^2) > 1e-9 * nrow(rows)) {
    groups <- intersect(c("listener", "item", "listener_system", "item_system"), names(rows))
    groups <- groups[sapply(rows[groups], function(group) length(unique(group))) < nrow(rows)]
    exact <- lmerControl(optCtrl = list(xtol_abs = 1e-10, ftol_abs = 1e-12)); method <- "mixed model"
    model <- reformulate(c(fixed, sprintf("(1 | %s)", groups)), "value")
    lines <- coef(summary(suppressMessages(lmerTest::lmer(model, rows, control = exact))))
    line <- lines[if (fixed == "1") 1 else paste0("ahead", first), ]; mean <- line[1]; error <- line[2]; df <- line[3]
  } else if (fixed == "ahead") {
    means <- tapply(rows$value, list(rows$listener, rows$ahead), mean)
    return(add_wilcoxon(means[, first] - means[, second], first, second))
  } else {
    means <- lapply(rows[c("listener", "item")], function(group) tapply(rows$value, group, mean))
    parts <- sapply(means, function(own) if (diff(range(own)) > 1e-9) var(own) / length(own) else 0)
    mean <- mean(rows$value); error <- sqrt(sum(parts)); df <- sum(parts)^2 / sum(parts^2 / (counts - 1))
  }
  least <- sqrt(1 / 12 / nrow(rows)); most <- if (fixed == "ahead") Inf else if (min(counts) <= 5) min(counts) else sum(counts) - 2
  df <- if (error > least) min(df, most) else most; error <- max(error, least)
  ends <- mean + c(-1, 1) * qt((1 + level) / 2, df) * error
  add(figure, first, second, method, mean, ends[1], ends[2], error, if (second != "") 2 * pt(-abs(mean) / error, df) else NA)
}

add_wilcoxon <- function(means, first, second) {
  means <- na.omit(round(means, 12))
  if (length(means) > 1 && any(means != 0))
    add("means of listeners", first, second, "Wilcoxon's test", p = suppressWarnings(wilcox.test(means)$p.value))
}

differences <- function(one, two) {  # of choices 0.5 or -0.5; of transcriptions, each item heard with one system
  heard <- votes[intersect(names(votes), named)]
  rows <- votes[rowSums(matrix(unlist(heard) %in% c(one, two), nrow(votes))) == length(heard), ]
  if (kind == "transcription")
    return(cbind(votes, value = votes$rating, ahead = relevel(factor(votes$system), two),
                 listener_system = paste(votes$listener, votes$system), item_system = paste(votes$item, votes$system)))
  if (kind == "CMOS") rows$value <- ifelse(rows$system == one, rows$rating, -rows$rating)
  else if (kind %in% choices) rows$value <- (if (kind == "ABX") rows$right == "True" else rows$chosen == one) - 0.5
  if ("value" %in% names(rows)) return(rows)
  cells <- aggregate(rating ~ listener + item + system, rows, mean)
  rows <- merge(cells[cells$system == one, ], cells[cells$system == two, ], by = c("listener", "item"))
  transform(rows, value = rating.x - rating.y)
}

options(width = 160)
responses <- votes
for (scale in if ("scale" %in% names(responses)) unique(responses$scale) else "") {
  votes <- if (scale == "") responses else responses[responses$scale == scale, ]
  if (scale != "") cat(scale, "\n")
  results <- list()
  systems <- sort(unique(unlist(votes[intersect(names(votes), named)])), method = "radix")
  if (!kind %in% c(choices, "CMOS"))
    for (system in systems) add_mean("mean", transform(votes[votes$system == system, ], value = rating), system)
  if (kind == "MUSHRA") systems <- setdiff(systems, c("reference", "anchor35", "anchor70"))
  for (pair in if (length(systems) > 1) combn(systems, 2, simplify = FALSE)) {
    rows <- differences(pair[1], pair[2])
    if (!nrow(rows)) next
    if (kind %in% choices) {
      count <- sum(rows$value > 0)
      test <- binom.test(count, nrow(rows), alternative = if (kind == "ABX") "greater" else "two.sided")
      ends <- binom.test(count, nrow(rows), conf.level = level)$conf.int
      add("share", pair[1], pair[2], "exact binomial test", count / nrow(rows), ends[1], ends[2], p = test$p.value)
    }
    add_mean(if (kind %in% choices) "lead" else "difference", rows, pair[1], pair[2])
    if (kind %in% choices && results[[length(results)]]$method == "mixed model") {
      fit <- suppressMessages(glmer(value > 0 ~ 1 + (1 | listener) + (1 | item), rows, family = binomial))
      line <- coef(summary(fit))[1, ]; ends <- line[1] + c(-1.96, 1.96) * line[2]
      add("log odds", pair[1], pair[2], "logistic mixed model", line[1], ends[1], ends[2], line[2], line[4])
    }
    if (!kind %in% c("ABX", "transcription")) add_wilcoxon(tapply(rows$value, rows$listener, mean), pair[1], pair[2])
  }
  if (length(results)) print(format(do.call(rbind, results), digits = 6), row.names = FALSE)
  if (kind %in% c("MOS", "SMOS", "DMOS") && length(systems) > 1 && length(unique(votes$rating)) > 2)
    print(coef(summary(clmm(factor(rating) ~ system + (1 | listener) + (1 | item), transform(votes, system = factor(system))))))
}
